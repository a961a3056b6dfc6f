"""Filesystems below a checkpoint store that record calls, fail, kill, or lose what is not synced."""

import os
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from trainyard_train.checkpointing.digests import Data
from trainyard_train.checkpointing.folder_store import Files


@dataclass
class Recording(Files):
    """Writes for real, and records the calls in order."""

    calls: list[tuple[str, str]] = field(default_factory=list)

    def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        super().write(path, data, finish)
        self.calls.append(("write", _short(path)))

    def rename(self, source: Path, target: Path) -> None:
        super().rename(source, target)
        self.calls.append(("rename", f"{_short(source)} → {_short(target)}"))

    def sync_directory(self, path: Path) -> None:
        super().sync_directory(path)
        self.calls.append(("sync", _short(path)))

    def remove_tree(self, path: Path) -> None:
        super().remove_tree(path)
        self.calls.append(("remove", _short(path)))


@dataclass
class Forgetful(Files):
    """Keeps, beside the real folder, a copy of what the disk would have after a power failure.

    A file's content is durable once the file is fsynced, its name once its folder is. A real disk may or may
    not lose what is not synced; this one loses all of it.
    """

    root: Path
    durable: Path
    fsync: bool = True
    """False: files are not fsynced, as in a build with a bug."""
    sync_names: bool = True
    """False: directories are not fsynced, as in a build with a bug."""
    _content: dict[int, bytes] = field(default_factory=dict, init=False)
    _moved: dict[int, Path] = field(default_factory=dict, init=False)

    def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        super().write(path, data, finish)
        self._content[path.stat().st_ino] = bytes(data) if self.fsync else b""

    def sync_directory(self, path: Path) -> None:
        if not self.sync_names:
            return
        super().sync_directory(path)
        shadow = self.durable / path.relative_to(self.root)
        shadow.mkdir(parents=True, exist_ok=True)
        names = {entry.name for entry in path.iterdir()}
        for name in names:
            self._make_durable(path / name, shadow / name)
        for entry in shadow.iterdir():
            if entry.name not in names:
                shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def rename(self, source: Path, target: Path) -> None:
        inner = self.durable / source.relative_to(self.root)
        super().rename(source, target)
        if inner.is_dir():  # names inside a folder are still synced after the folder is renamed
            self._moved[target.stat().st_ino] = inner

    def _make_durable(self, entry: Path, shadow: Path) -> None:
        if entry.is_file():
            shadow.write_bytes(self._content.get(entry.stat().st_ino, b""))
        elif not shadow.exists():
            inner = self._moved.pop(entry.stat().st_ino, None)
            if inner and inner.exists():
                inner.rename(shadow)
            else:
                shadow.mkdir()


@dataclass
class Killing(Recording):
    """Kills the current process at the n-th call, of which a write is done by half."""

    at: int = 0

    def _count(self) -> None:
        if len(self.calls) == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        if len(self.calls) == self.at:
            path.write_bytes(data[: len(data) // 2])
        self._count()
        super().write(path, data, finish)

    def rename(self, source: Path, target: Path) -> None:
        self._count()
        super().rename(source, target)

    def sync_directory(self, path: Path) -> None:
        self._count()
        super().sync_directory(path)

    def remove_tree(self, path: Path) -> None:
        if len(self.calls) == self.at:
            next(iter(path.iterdir())).unlink()
        self._count()
        super().remove_tree(path)


def _short(path: Path) -> str:
    """Return a file's name without its nonce."""
    parts = path.name.split(".")
    stable = [part for part in parts if not (len(part) == 8 and set(part) <= set("0123456789abcdef"))]
    return ".".join(stable)
