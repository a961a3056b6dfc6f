"""Starts, finds and ends long-running processes, identified by their last argument and not by PID files.

The argument is a path that only one process has. So no record can be stale: a PID that the kernel reuses
after a crash or a reboot is never taken for ours.
"""

import contextlib
import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import psutil

from infra.errors import Problem, TrainyardError

STOP_SECONDS = 20.0


def find(identity: Path) -> list[psutil.Process]:
    """Every running process whose last argument is this path."""
    return [process for process in psutil.process_iter() if _is(process, identity)]


def program_of(process: psutil.Process) -> str:
    """Path of the program that it runs now; empty for one that has ended.

    psutil would keep its first answer, but a process that was just forked runs its parent's program.
    """
    try:
        return str(Path(f"/proc/{process.pid}/exe").readlink())
    except OSError:
        return ""


def start(argv: Sequence[str], environment: Mapping[str, str], log: Path) -> None:
    """Start a process that outlives us, in a separate session, with its output appended to `log`."""
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
    """Kill the processes of this identity and wait until they and their children have ended.

    psutil compares start times before it signals, so not even a process that ends just now and whose
    number is reused in the same moment can cause the kill of another.
    """
    processes = find(identity)
    below = [child for process in processes for child in _children(process)]
    for process in processes:
        with contextlib.suppress(psutil.NoSuchProcess):
            process.kill()
    waited_for = [*processes, *below]
    if not wait_until(lambda: not any(map(_is_alive, waited_for)), seconds=STOP_SECONDS, poll_seconds=0.02):
        left = ", ".join(str(process) for process in waited_for if _is_alive(process))
        fix = "find out what blocks them in the kernel (`cat /proc/PID/stack`), then run this again"
        raise TrainyardError([Problem(str(identity), f"killed, but still running: {left}", "ended", fix)])


def wait_until(condition: Callable[[], bool], *, seconds: float, poll_seconds: float = 0.1) -> bool:
    """Poll until the condition holds; False when it does not within this time."""
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(poll_seconds)
    return True


def _is(process: psutil.Process, identity: Path) -> bool:
    try:
        return process.cmdline()[-1:] == [str(identity)] and _is_alive(process)
    except psutil.NoSuchProcess:
        return False


def _is_alive(process: psutil.Process) -> bool:
    # The process that adopted it may reap it late, and a zombie holds no resources.
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def _children(process: psutil.Process) -> list[psutil.Process]:
    try:
        return process.children(recursive=True)
    except psutil.NoSuchProcess:
        return []
