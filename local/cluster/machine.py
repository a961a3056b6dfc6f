"""A machine: namespaces of its own, and an init in them that keeps its daemons running.

The control plane is one, and so is every node. Killing the init, as losing a machine's power would, ends
every process and every mount of it at once.
"""

from __future__ import annotations

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

from local.cluster import init, processes
from local.cluster.commands import ENVIRONMENT, program, run


@dataclass(frozen=True)
class Mount:
    """A mount that only this machine sees; see `init.Mount`."""

    kind: str
    source: str
    target: str


@dataclass(frozen=True)
class Daemon:
    """A program that init keeps running."""

    name: str
    argv: tuple[str, ...]
    log: str
    env: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    """A file that must exist before the first start; empty for none."""


@dataclass(frozen=True)
class MachineSpec:
    """All that init does; a machine is started anew when any of it changes."""

    daemons: tuple[Daemon, ...]
    sysctls: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    folders: tuple[str, ...] = ()

    def to_json(self) -> str:
        """What init reads, with a digest of the files that the daemons read once, at their start."""
        return json.dumps({**asdict(self), "inputs": self._inputs()}, indent=1)

    def _inputs(self) -> str:
        arguments = [argument for daemon in self.daemons for argument in daemon.argv[1:]]
        values = [argument.split("=", 1)[-1] for argument in arguments]
        files = [Path(value) for value in values if value.startswith("/") and Path(value).is_file()]
        return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


@dataclass(frozen=True)
class Machine:
    """A machine in a network namespace that exists already."""

    folder: Path
    network: Path
    """Where its network namespace is mounted."""

    @property
    def _file(self) -> Path:
        return self.folder / "machine.json"

    def is_running(self) -> bool:
        return bool(processes.find(self._file))

    def start(self, spec: MachineSpec) -> bool:
        """Make it run with this spec; False when it did already."""
        text = spec.to_json()
        running = self.is_running()
        if running and self._file.exists() and self._file.read_text() == text:
            return False
        if running:
            self.stop()
        self.folder.mkdir(parents=True, exist_ok=True)
        self._file.write_text(text)
        processes.start(self._argv(), ENVIRONMENT, self.folder / "init.log")
        return True

    def stop(self) -> None:
        """Take its power: everything in it ends at once."""
        processes.end(self._file)

    def run(self, *argv: str, timeout_seconds: float = 600) -> str:
        """Run a program among the machine's mounts and return what it printed.

        Raises TrainyardError when it fails and RuntimeError when the machine does not run.
        """
        inside = [p for p in processes.find(self._file) if p.cmdline()[0] == sys.executable]
        if not inside:
            raise RuntimeError(f"machine {self.folder.name} does not run")
        return run(
            *(program("nsenter"), f"--target={inside[0].pid}", "--mount", "--net", "--"),
            *argv,
            timeout_seconds=timeout_seconds,
        )

    def _argv(self) -> Sequence[str]:
        # Not `ip netns exec`: it mounts a /sys of its own, which hides the cgroups from kubelet.
        return [
            program("nsenter"),
            f"--net={self.network}",
            "--wd=/",
            program("unshare"),
            *("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-I", "-S", init.__file__, str(self._file)),
        ]
