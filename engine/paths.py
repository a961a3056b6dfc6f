"""Defines the folders and files of this host that Trainyard uses: cache, state, engine, clusters, stack
files, policies and programs. Environment variables (`TRAINYARD_…`) replace some of them.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
"""Root of the clone, or of the copy that a wheel contains (setup.py)."""
START = "trainyard_start.py"
"""Script in the root that starts a module of ours, with our tree first on Python's path."""


@dataclass(frozen=True)
class Paths:
    """Root folders, from which all other paths are derived, so that tests can replace them."""

    cache: Path
    """Folder of content-addressed artifacts; safe to delete at any time."""
    state: Path
    """Folder of clusters, engine state and data."""
    repository: Path = REPOSITORY
    stacks_folder: Path | None = None
    """Folder of stack files that are neither in the clone nor in `stacks` of the working folder."""
    organisation: Path | None = None
    """File with the organisation's policy configuration, which holds for every stack."""

    @classmethod
    def from_environment(cls, environ: Mapping[str, str] = os.environ) -> "Paths":
        """Read `TRAINYARD_CACHE`, `_STATE`, `_STACKS` and `_ORGANISATION`, and XDG's cache and state."""
        home = environ.get("HOME", "/root")
        cache = environ.get("XDG_CACHE_HOME") or f"{home}/.cache"
        state = environ.get("XDG_STATE_HOME") or f"{home}/.local/state"
        if os.geteuid() == 0:  # with the clusters of this host
            state = "/var/lib"
        elif sys.platform == "darwin":
            state = f"{home}/Library/Application Support"
        organisation = environ.get("TRAINYARD_ORGANISATION")
        stacks = environ.get("TRAINYARD_STACKS") or ("stacks" if _is_project(Path.cwd()) else None)
        return cls(
            cache=Path(environ.get("TRAINYARD_CACHE") or f"{cache}/trainyard"),
            state=Path(environ.get("TRAINYARD_STATE") or f"{state}/trainyard"),
            stacks_folder=Path(stacks) if stacks else None,
            organisation=Path(organisation).absolute() if organisation else None,
        )

    @property
    def is_installed(self) -> bool:
        """Whether the repository came with a wheel, whose .pth file is beside it, and is no clone."""
        return (self.repository.parent / "trainyard.pth").exists()

    @property
    def stacks(self) -> Path:
        """The folder of `Pulumi.<stack>.yaml`: of the project that is worked in, else of the clone."""
        return self.stacks_folder or (Path.cwd() if self.is_installed else self.repository) / "stacks"

    def stack_names(self) -> list[str]:
        """Names of the stack files."""
        return [path.name.split(".")[1] for path in sorted(self.stacks.glob("Pulumi.*.yaml"))]

    def usual_stack(self) -> str:
        """The stack that a command means which names none: the only one, else the embedded cluster's."""
        names = self.stack_names()
        return names[0] if len(names) == 1 else "local"

    def stack_file(self, stack: str) -> Path:
        """Path of the stack file, which the user writes and Trainyard only reads."""
        return self.stacks / f"Pulumi.{stack}.yaml"

    @property
    def bin(self) -> Path:
        """Per clone: links to cached binaries and our plugins; first on PATH."""
        return self.repository / ".trainyard" / "bin"

    @property
    def venv(self) -> Path:
        return self.repository / ".venv"

    @property
    def policies(self) -> Path:
        """The policy pack that every stack is evaluated by."""
        return self.repository / "policies"

    @property
    def engine(self) -> Path:
        """The file backend of the engine and its passphrase (0600)."""
        return self.state / "pulumi"

    def cluster_run(self, cluster: str) -> Path:
        """etcd, PKI, node roots, pid files; removed by `down`."""
        return self.state / cluster / "run"

    def cluster_data(self, cluster: str) -> Path:
        """Checkpoints and the object store; retained by `down`, removed by `down --purge`."""
        return self.state / cluster / "data"


def _is_project(folder: Path) -> bool:
    """Whether a folder is a user's Pulumi project with stack files, and not this clone."""
    return folder != REPOSITORY and (folder / "Pulumi.yaml").exists() and (folder / "stacks").is_dir()
