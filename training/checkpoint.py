"""Checkpoints as directories that exist whole or not at all.

A checkpoint is written into `step-N.tmp.<nonce>`: each file is flushed and fsynced, the manifest (size
and sha256 of each file) comes last, then the directory is fsynced, renamed to `step-N`, and its parent
fsynced. Only after that does `latest` move, and only after that are older checkpoints deleted. A process
that dies anywhere in between leaves the previous checkpoint as it was. Loading verifies every byte and
falls back past what is damaged.

Nothing here needs PyTorch.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import secrets
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from io import BufferedReader
from pathlib import Path
from typing import Any

MANIFEST = "manifest.json"
LATEST = "latest"
FORMAT = 1
_COMMITTED = re.compile(r"step-(\d{8,})")
_LEFTOVER = re.compile(r"step-\d{8,}\.(tmp|trash)\.[0-9a-f]+")


class DamagedError(ValueError):
    """A checkpoint is not what its manifest says. The message names the file and the difference."""


class Files:
    """The calls by which data becomes durable, in one place, so that tests can record or fail them."""

    def make_directory(self, path: Path) -> None:
        """Create a directory; it may exist."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, data: bytes) -> None:
        """Create a file with this content and wait until the disk has it."""
        with path.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    def rename(self, source: Path, target: Path) -> None:
        """Give a file or directory another name, replacing a file of that name, in one step."""
        source.replace(target)

    def sync_directory(self, path: Path) -> None:
        """Wait until the disk has the names in a directory."""
        descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)

    def remove_tree(self, path: Path) -> None:
        """Delete a directory and what is in it; parts that are gone already do not matter."""
        shutil.rmtree(path, ignore_errors=True)


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and sha256 of one file."""

    size: int
    sha256: str


@dataclass(frozen=True)
class Manifest:
    """What a checkpoint holds, and where in the run it was taken."""

    step: int
    """Optimizer steps that are in it."""
    samples: int
    """The cursor in the global order of samples: how many were consumed."""
    world_size: int
    mesh: Mapping[str, int]
    """Size of each dimension of the device mesh."""
    schedule: Mapping[str, Any]
    """State of the learning rate (see `training.optim.Schedule`)."""
    identity: Mapping[str, Any]
    """What a run must have in common with this one to resume from it."""
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    created: float = field(default_factory=time.time)
    """Unix time; for people only, nothing depends on it."""

    def encode(self) -> bytes:
        """JSON with a checksum of its own, since a flipped bit may hit the manifest too."""
        body = {"format": FORMAT, **asdict(self)}
        return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode()

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """Read what `encode` wrote.

        Raises:
            DamagedError: it is not JSON, is of another format, or was altered.
        """
        try:
            body = json.loads(data)
            stated = body.pop("sha256")
            if body.pop("format") != FORMAT:
                raise DamagedError(f"{MANIFEST} has a format other than {FORMAT}")
            manifest = Manifest(**{**body, "files": {n: FileEntry(**e) for n, e in body["files"].items()}})
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            if isinstance(error, DamagedError):
                raise
            raise DamagedError(f"{MANIFEST} cannot be read: {error}") from None
        if stated != _digest({"format": FORMAT, **body}):
            raise DamagedError(f"{MANIFEST} was altered: its own checksum does not match")
        return manifest


@dataclass(frozen=True)
class Checkpoint:
    """One committed checkpoint."""

    path: Path
    manifest: Manifest

    def read(self, name: str) -> bytes:
        """The content of one file, checked.

        Raises:
            DamagedError: missing, of another size, or altered.
        """
        entry = self.manifest.files.get(name)
        if entry is None:
            raise DamagedError(f"{MANIFEST} does not list {name}")
        try:
            data = (self.path / name).read_bytes()
        except FileNotFoundError:
            raise DamagedError(f"{name} is missing") from None
        _compare(name, entry, FileEntry(len(data), hashlib.sha256(data).hexdigest()))
        return data

    def verify(self) -> None:
        """Read every file once and compare it with the manifest.

        Raises:
            DamagedError: for the first file that differs.
        """
        for name, entry in self.manifest.files.items():
            try:
                with (self.path / name).open("rb") as file:
                    _compare(name, entry, _entry_of(file))
            except FileNotFoundError:
                raise DamagedError(f"{name} is missing") from None


@dataclass(frozen=True)
class CheckpointStore:
    """A folder of checkpoints that all ranks share. Only rank 0 begins, commits, prunes and tidies."""

    root: Path
    keep_last: int = 3
    files: Files = field(default_factory=Files)

    def begin(self, step: int) -> Path:
        """A new folder to write into; nothing that loads will look at it."""
        if not self.root.is_dir():
            self.files.make_directory(self.root)
            self.files.sync_directory(self.root.parent)
        draft = self.root / f"{_name(step)}.tmp.{secrets.token_hex(4)}"
        self.files.make_directory(draft)
        return draft

    def write(self, draft: Path, name: str, data: bytes) -> FileEntry:
        """Write one file of a draft durably; any rank may, each its own names."""
        self.files.write(draft / name, data)
        return FileEntry(len(data), hashlib.sha256(data).hexdigest())

    def commit(self, draft: Path, manifest: Manifest) -> Path:
        """Make a draft a checkpoint, then move `latest`, then delete what is beyond `keep_last`.

        Every file of the manifest must have been written. A checkpoint of the same step that exists
        already stands, and the draft is dropped: the same step of the same run holds the same state.
        """
        target = self.root / _name(manifest.step)
        self.files.write(draft / MANIFEST, manifest.encode())
        self.files.sync_directory(draft)
        try:
            self.files.rename(draft, target)
        except OSError:
            if not target.is_dir():
                raise
            self.discard(draft)
        self.files.sync_directory(self.root)
        self._point_latest_at(target)
        self._prune()
        return target

    def discard(self, draft: Path) -> None:
        """Drop a draft."""
        self.files.remove_tree(draft)

    def tidy(self) -> None:
        """Remove what runs that died left behind. A live writer of another run fails at its next file."""
        for path in self._entries(_LEFTOVER):
            self.files.remove_tree(path)

    def committed(self) -> list[Path]:
        """Committed checkpoints, newest first, unverified."""
        return sorted(self._entries(_COMMITTED), key=_step, reverse=True)

    def open(self, path: Path) -> Checkpoint:
        """Read a checkpoint's manifest.

        Raises:
            DamagedError: there is none, or it is not to be trusted.
        """
        try:
            manifest = Manifest.decode((path / MANIFEST).read_bytes())
        except FileNotFoundError:
            raise DamagedError(f"{MANIFEST} is missing") from None
        if manifest.step != _step(path):
            raise DamagedError(f"{MANIFEST} is of step {manifest.step}")
        return Checkpoint(path, manifest)

    def newest(self, on_damage: Callable[[Path, str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; None if there is none.

        Args:
            on_damage: called with each newer one that is not whole, and what is wrong with it.
        """
        told: set[Path] = set()
        while candidates := [path for path in self.committed() if path not in told]:
            path = candidates[0]
            try:
                checkpoint = self.open(path)
                checkpoint.verify()
            except DamagedError as error:
                if path.exists():  # or a run that lives has deleted it, and has a newer one
                    told.add(path)
                    on_damage(path, str(error))
            else:
                return checkpoint
        return None

    def set_aside(self, path: Path) -> Path:
        """Rename a damaged checkpoint, so that its step can be saved again; it is kept for a look."""
        aside = path.with_name(f"{path.name}.damaged.{secrets.token_hex(4)}")
        self.files.rename(path, aside)
        return aside

    def _point_latest_at(self, target: Path) -> None:
        draft = self.root / f"{LATEST}.tmp"
        self.files.write(draft, target.name.encode())
        self.files.rename(draft, self.root / LATEST)
        self.files.sync_directory(self.root)

    def _prune(self) -> None:
        for path in self.committed()[self.keep_last :]:
            trash = path.with_name(f"{path.name}.trash.{secrets.token_hex(4)}")
            self.files.rename(path, trash)  # a half-deleted checkpoint must not look like one
            self.files.remove_tree(trash)

    def _entries(self, pattern: re.Pattern[str]) -> list[Path]:
        if not self.root.is_dir():
            return []
        return [path for path in self.root.iterdir() if pattern.fullmatch(path.name)]


def _name(step: int) -> str:
    return f"step-{step:08d}"


def _step(path: Path) -> int:
    return int(path.name.removeprefix("step-"))


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()


def _entry_of(file: BufferedReader) -> FileEntry:
    digest = hashlib.file_digest(file, "sha256").hexdigest()
    return FileEntry(file.tell(), digest)


def _compare(name: str, stated: FileEntry, found: FileEntry) -> None:
    if found.size != stated.size:
        raise DamagedError(f"{name} has {found.size} bytes, the manifest says {stated.size}")
    if found.sha256 != stated.sha256:
        raise DamagedError(f"{name} was altered: its sha256 does not match the manifest")
