"""Start, find and end long-running processes, by what they are and never by a number on file.

A process is known by its last argument, a path that only it has. So nothing can go stale: a number that
the kernel gave to another process after a crash or a reboot is never taken for ours.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

import psutil

STOP_SECONDS = 20.0


def find(identity: Path) -> list[psutil.Process]:
    """Every live process whose last argument is this path."""
    return [process for process in psutil.process_iter() if _is(process, identity)]


def start(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    """Start a process that outlives us, in a session of its own, with its output appended to `log`."""
    log.parent.mkdir(parents=True, exist_ok=True)
    os.posix_spawn(
        argv[0],
        list(argv),
        environment,
        file_actions=[
            (os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
            (os.POSIX_SPAWN_OPEN, 1, str(log), os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600),
            (os.POSIX_SPAWN_DUP2, 1, 2),
        ],
        setsid=True,
    )


def end(identity: Path) -> None:
    """Kill the processes of this identity and wait until they and all below them are gone.

    psutil compares start times before it signals, so not even a process that ends just now and whose
    number is given away in the same moment can lead to killing another.
    """
    processes = find(identity)
    below = [child for process in processes for child in _children(process)]
    for process in processes:
        try:
            process.kill()
        except psutil.NoSuchProcess:
            continue
    _, alive = psutil.wait_procs([*processes, *below], timeout=STOP_SECONDS)
    if alive:
        raise TimeoutError(f"killed, but still there: {', '.join(str(process.pid) for process in alive)}")


def _is(process: psutil.Process, identity: Path) -> bool:
    try:
        return process.cmdline()[-1:] == [str(identity)] and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
