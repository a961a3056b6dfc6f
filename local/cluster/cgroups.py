"""Creates and removes the cgroup of each node in every hierarchy."""

import contextlib
import os
from pathlib import Path

_INHERITED = ("cpuset.cpus", "cpuset.mems")
ROOT = "trainyard"


def make(name: str) -> None:
    """Make `/trainyard/<name>` in every hierarchy."""
    for hierarchy in hierarchies():
        folder = hierarchy
        for part in (ROOT, *name.split("/")):
            _delegate(folder)
            folder = folder / part
            folder.mkdir(exist_ok=True)
            _inherit(folder)


def remove(name: str) -> None:
    """Remove it with all below it, and its parents where they are empty; its processes must have ended."""
    for hierarchy in hierarchies():
        top = hierarchy / ROOT
        folder = top / name
        for path, _, _ in os.walk(folder, topdown=False):
            with contextlib.suppress(FileNotFoundError):  # a container's, which its runtime has just removed
                Path(path).rmdir()
        while folder != hierarchy:
            with contextlib.suppress(OSError):
                folder.rmdir()
            folder = folder.parent


def hierarchies() -> list[Path]:
    """Return the mount points of the host's cgroup hierarchies, of version 1, 2 or both."""
    fields = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return sorted({Path(field[1]) for field in fields if field[2] in {"cgroup", "cgroup2"}})


def _inherit(folder: Path) -> None:
    # A new cpuset of version 1 is empty, and no process may join it while it is.
    for name in _INHERITED:
        file = folder / name
        if file.exists() and not file.read_text().strip():
            file.write_text((folder.parent / name).read_text())


def _delegate(folder: Path) -> None:
    control = folder / "cgroup.subtree_control"
    if control.exists():
        enabled = set(control.read_text().split())
        for controller in (folder / "cgroup.controllers").read_text().split():
            if controller not in enabled:
                control.write_text(f"+{controller}")
