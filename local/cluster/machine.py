"""Starts, finds and ends an embedded machine: separate namespaces, and an init that supervises its daemons.

The control plane is one machine, and so is every node. Killing the init ends every process and mount of the
machine at once, as a power failure would.
"""

import hashlib
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Literal

from infra.errors import Problem, TrainyardError
from local.cluster import init, processes
from local.cluster.commands import ENVIRONMENT, program, run
from local.cluster.files import write
from local.cluster.processes import wait_until

START_SECONDS = 60.0
"""Timeout for a daemon's start; containerd takes 1 s on idle cores."""
_PYTHON = str(Path(sys.executable).resolve())


@dataclass(frozen=True)
class Mount:
    """A mount that only this machine sees."""

    kind: Literal["bind", "tmpfs"]
    source: str
    """Folder to bind; empty for a tmpfs."""
    target: str


@dataclass(frozen=True)
class Daemon:
    """A program that init keeps running."""

    name: str
    argv: tuple[str, ...]
    log: str
    env: Mapping[str, str] = field(default_factory=dict)
    after: str = ""
    """Path of a file that must exist before the first start; empty for none."""


@dataclass(frozen=True)
class InitSpec:
    """Input of a machine's init; a change of any part restarts the machine."""

    daemons: tuple[Daemon, ...]
    sysctls: Mapping[str, str]
    mounts: tuple[Mount, ...] = ()
    folders: tuple[str, ...] = ()

    def to_json(self) -> str:
        """Return the input of init, with a digest of the files that daemons read only at their start.

        Logs are excluded: the API server's audit log grows, which must not restart a daemon.
        """
        return json.dumps({**asdict(self), "inputs": self._inputs()}, indent=1)

    def _inputs(self) -> str:
        arguments = [argument for daemon in self.daemons for argument in daemon.argv[1:]]
        values = [argument.split("=", 1)[-1] for argument in arguments]
        paths = [Path(value) for value in values if value.startswith("/") and not value.endswith(".log")]
        return hashlib.sha256(b"".join(path.read_bytes() for path in paths if path.is_file())).hexdigest()


@dataclass(frozen=True)
class ClusterMachine:
    """A machine in a network namespace that exists already."""

    folder: Path
    network: Path
    """Path at which the machine's network namespace is mounted."""

    @property
    def _file(self) -> Path:
        return self.folder / "machine.json"

    def is_running(self, spec: InitSpec | None = None) -> bool:
        """Whether it runs, and with this spec, if one is given."""
        wanted = spec is None or (self._file.exists() and self._file.read_text() == spec.to_json())
        return wanted and bool(processes.find(self._file))

    def start(self, spec: InitSpec) -> None:
        """Start it; it must not run."""
        write(self._file, spec.to_json())
        processes.start(self._argv(), ENVIRONMENT, self.folder / "init.log")

    def stop(self) -> None:
        """Take its power: everything in it ends at once."""
        processes.end(self._file)

    def run(self, *argv: str, needs: str, timeout_seconds: float = 600) -> str:
        """Run a program among the machine's mounts and return its output.

        It starts as soon as the machine has the file `needs`, the socket of a daemon.
        Raises TrainyardError if that file does not appear, or if the program fails.
        """
        if not wait_until(lambda: self._has(needs), seconds=START_SECONDS):
            got, fix = f"no {needs} after {START_SECONDS:.0f} s", f"read the logs in {self.folder}"
            raise TrainyardError([Problem(f"machine {self.folder.name}", got, "a running machine", fix)])
        inside = f"--target={self._init()}"
        return run(
            *(program("nsenter"), inside, "--mount", "--net", "--"), *argv, timeout_seconds=timeout_seconds
        )

    def _has(self, path: str) -> bool:
        init_pid = self._init()
        return init_pid is not None and Path(f"/proc/{init_pid}/root{path}").exists()

    def _init(self) -> int | None:
        """Process id of the machine's init, as the host counts."""
        found = processes.find(self._file)
        return next((p.pid for p in found if processes.program_of(p) == _PYTHON), None)

    def _argv(self) -> Sequence[str]:
        # Not `ip netns exec`: it mounts a separate /sys, which hides the cgroups from kubelet.
        return [
            program("nsenter"),
            f"--net={self.network}",
            "--wd=/",
            program("unshare"),
            *("--mount", "--pid", "--fork", "--kill-child", "--mount-proc"),
            *(sys.executable, "-I", "-S", init.__file__, str(self._file)),
        ]
