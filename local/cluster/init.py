"""Process 1 of an embedded cluster's machine (a node or the control plane): makes mounts and folders, sets
sysctls, and supervises the machine's daemons. Killing it ends every process and mount of the machine.

It runs by path and on the standard library alone (`python -I -S init.py machine.json`): it outlives the
process that started it, and each machine has one, so it must be small. `machine.json` is a
`local.cluster.machine.InitSpec` as JSON.
"""

import json
import os
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

RESTART_SECONDS = 1.0
"""Minimum time between two starts of a daemon."""
POLL_SECONDS = 0.1
Entry = dict[str, Any]
"""A `Daemon` or a `Mount` of `local.cluster.machine`, as JSON."""


class Supervisor:
    """Starts daemons, starts them again when they end, and reaps every orphan."""

    def __init__(self, daemons: list[Entry]) -> None:
        self.waiting = list(daemons)
        self.running: dict[int, tuple[Entry, float]] = {}

    def run(self) -> None:
        """Never returns."""
        while True:
            for daemon in [d for d in self.waiting if not d["after"] or Path(d["after"]).exists()]:
                self.waiting.remove(daemon)
                self.start(daemon)
            self.reap()

    def start(self, daemon: Entry) -> None:
        """Start one daemon, with its output appended to its log."""
        output = (os.POSIX_SPAWN_OPEN, 1, daemon["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        actions = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0), output, (os.POSIX_SPAWN_DUP2, 1, 2)]
        environment = {**os.environ, **daemon["env"]}
        pid = os.posix_spawn(
            daemon["argv"][0], daemon["argv"], environment, file_actions=actions, setsid=True
        )
        self.running[pid] = (daemon, time.monotonic())

    def reap(self) -> None:
        """Wait for a process to end, but only briefly while daemons still wait for their file."""
        try:
            pid, _ = os.waitpid(-1, os.WNOHANG if self.waiting else 0)
        except ChildProcessError:
            pid = 0
        if pid == 0:
            time.sleep(POLL_SECONDS)
        elif pid in self.running:
            daemon, started = self.running.pop(pid)
            time.sleep(max(0.0, RESTART_SECONDS - (time.monotonic() - started)))
            self.start(daemon)


def mount(entry: Entry) -> None:
    """Make one mount; its target must exist, a missing source of a bind is made."""
    if entry["kind"] == "bind":
        Path(entry["source"]).mkdir(parents=True, exist_ok=True)
        command = ["mount", "--bind", entry["source"], entry["target"]]
    else:
        command = ["mount", "-t", entry["kind"], "-o", "mode=755", entry["kind"], entry["target"]]
    subprocess.run(command, check=True)


def let_pods_lock_memory() -> None:
    """Pods inherit containerd's limit, and that inherits ours: set none, or the host's maximum."""
    most = resource.getrlimit(resource.RLIMIT_MEMLOCK)[1]
    try:
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
    except ValueError:  # without CAP_SYS_RESOURCE
        resource.setrlimit(resource.RLIMIT_MEMLOCK, (most, most))


def main(path: str) -> None:
    """Bring the machine of this file up and keep it so."""
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    let_pods_lock_memory()
    spec = json.loads(Path(path).read_text())
    for entry in spec["mounts"]:
        mount(entry)
    for folder in spec["folders"]:
        Path(folder).mkdir(parents=True, exist_ok=True)
    for key, value in spec["sysctls"].items():
        Path("/proc/sys", key).write_text(value)
    Supervisor(spec["daemons"]).run()


if __name__ == "__main__":
    main(sys.argv[1])
