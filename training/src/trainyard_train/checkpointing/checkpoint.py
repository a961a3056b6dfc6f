"""Checkpoints that exist whole or not at all, wherever they are kept.

A checkpoint is a set of files and a manifest, written last, that lists the size and the sha256 of each.
Loading verifies every byte and falls back past what is damaged. `folder_store` keeps them in a folder that
the ranks share, `object_store` in S3 and its like.

Nothing here needs PyTorch.
"""

from __future__ import annotations

import hashlib
import json
import mmap
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Final

MANIFEST: Final = "manifest.json"
LATEST: Final = "latest"
FORMAT: Final = 3
Data = bytes | memoryview
"""The content of a file."""
_COMMITTED: Final = re.compile(r"step-(\d{8,})")


class DamagedError(ValueError):
    """A checkpoint is not what its manifest says. The message names the file and the difference."""


class FormatError(ValueError):
    """A checkpoint was written by another version of this package; nothing is wrong with it."""


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and sha256 of one file."""

    size: int
    sha256: str

    @staticmethod
    def of(data: Data) -> FileEntry:
        """The entry of a file with this content."""
        return FileEntry(len(data), hashlib.sha256(data).hexdigest())


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
    """State of the learning rate (see `trainyard_train.optim.optimizer.Schedule`)."""
    identity: Mapping[str, Any]
    """What a run must have in common with this one to resume from it."""
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    loss_scale: Mapping[str, Any] = field(default_factory=dict)
    """State of the scale of the loss, with float16 (see `trainyard_train.computation.LossScale`)."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """What a run of the library tracks (see `checkpointing.tracked.merge`); empty in others, and left out."""
    draft: str = ""
    """Where the files are, seen from the manifest, if not beside it."""
    created: float = field(default_factory=time.time)
    """Unix time; for people only, nothing depends on it."""

    def encode(self) -> bytes:
        """JSON with a checksum of its own, since a flipped bit may hit the manifest too."""
        body = {"format": FORMAT, **asdict(self)}
        if not self.state:
            del body["state"]
        return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode()

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """Read what `encode` wrote.

        Raises:
            DamagedError: it is not JSON, or was altered.
            FormatError: another version wrote it.
        """
        try:
            body = json.loads(data)
            stated = body.pop("sha256")
            if stated != _digest(body):  # of every format; a flipped bit must not look like another version
                raise DamagedError(f"{MANIFEST} was altered: its own checksum does not match")
            if (found := body.pop("format")) != FORMAT:
                raise FormatError(_of_another_version(found))
            return Manifest(**{**body, "files": {n: FileEntry(**e) for n, e in body["files"].items()}})
        except (DamagedError, FormatError):
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{MANIFEST} cannot be read: {error}") from None


@dataclass(frozen=True)
class Checkpoint:
    """One committed checkpoint."""

    manifest: Manifest
    store: CheckpointStore = field(compare=False)

    @property
    def name(self) -> str:
        """Its name in its store."""
        return step_name(self.manifest.step)

    def read(self, name: str) -> memoryview:
        """The content of one file, checked.

        Raises:
            DamagedError: missing, of another size, or altered.
        """
        entry = self.manifest.files.get(name)
        if entry is None:
            raise DamagedError(f"{MANIFEST} does not list {name}")
        place = "/".join(filter(None, (self.name, self.manifest.draft, name)))
        try:
            data = self.store.load(place, entry.size)
        except FileNotFoundError:
            raise DamagedError(f"{name} is missing") from None
        found = FileEntry.of(data)
        if found.size != entry.size:
            raise DamagedError(f"{name} has {found.size} bytes, the manifest says {entry.size}")
        if found.sha256 != entry.sha256:
            raise DamagedError(f"{name} was altered: its sha256 does not match the manifest")
        return data

    def readers(self, world_size: int) -> dict[str, int]:
        """File → the rank that reads it for all; its own, where there are as many ranks as there were."""
        return {name: number % world_size for number, name in enumerate(sorted(self.manifest.files))}

    def verify(self) -> None:
        """Read every file once and compare it with the manifest.

        Raises:
            DamagedError: for the first file that differs.
        """
        for name in self.manifest.files:
            self.read(name)


@dataclass(frozen=True)
class Retention:
    """Which checkpoints stay."""

    last: int = 3
    """How many of the newest."""
    every_steps: int = 0
    """Those whose step is a multiple of this stay for good; 0: none."""
    tag: bool = False
    """Whether the others are marked, for the store to delete them later, instead of deleted."""

    def superseded(self, steps: Sequence[int]) -> list[int]:
        """Those of `steps`, newest first, that need not stay."""
        return [step for step in steps[self.last :] if not self.every_steps or step % self.every_steps]


KEEP_THREE: Final = Retention()


@dataclass(frozen=True)
class CheckpointStore(ABC):
    """Where the checkpoints of a run are. All ranks write; only rank 0 begins, commits, prunes and tidies.

    Every call may raise OSError: then nothing that was committed is lost.
    """

    @property
    @abstractmethod
    def where(self) -> str:
        """Its place, for people."""

    @abstractmethod
    def begin(self, step: int) -> str:
        """The name of a new draft; nothing that loads will look at it."""

    @abstractmethod
    def write(self, draft: str, name: str, data: Data) -> FileEntry:
        """Write one file of a draft durably; any rank may, each its own names."""

    @abstractmethod
    def commit(self, draft: str, manifest: Manifest) -> None:
        """Make a draft a checkpoint: once this returns, it is durable.

        Every file of the manifest must have been written. A checkpoint of the same step that exists
        already stands, and the draft is dropped: the same step of the same run holds the same state.
        """

    @abstractmethod
    def clean_up(self, step: int) -> None:
        """After a commit: move `latest`, then let go of what need not stay.

        Later checkpoints may be written and committed meanwhile.
        """

    @abstractmethod
    def discard(self, draft: str) -> None:
        """Drop a draft; never raises."""

    @abstractmethod
    def collect_garbage(self) -> None:
        """Remove what runs that died left behind. A live writer of another run commits nothing then."""

    @abstractmethod
    def committed(self) -> list[int]:
        """The steps of committed checkpoints, newest first, unverified."""

    @abstractmethod
    def read(self, place: str) -> bytes:
        """The content of a small file.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def load(self, place: str, size: int) -> memoryview:
        """The content of a file of any size, of which `size` bytes are expected; it may be written to.

        No call holds Python's interpreter for long, since heartbeats and preemption notices need it.

        Raises:
            FileNotFoundError: there is none.
        """

    @abstractmethod
    def quarantine(self, step: int) -> str:
        """Take a damaged checkpoint out, so that its step can be saved again; returns where it is kept."""

    def open(self, step: int) -> Checkpoint:
        """Read a checkpoint's manifest.

        Raises:
            DamagedError: there is none, or it is not to be trusted.
        """
        try:
            manifest = Manifest.decode(self.read(f"{step_name(step)}/{MANIFEST}"))
        except FileNotFoundError:
            raise DamagedError(f"{MANIFEST} is missing") from None
        if manifest.step != step:
            raise DamagedError(f"{MANIFEST} is of step {manifest.step}")
        return Checkpoint(manifest, self)

    def newest(self, on_damage: Callable[[int, str], None]) -> Checkpoint | None:
        """The newest checkpoint that is whole; None if there is none.

        Args:
            on_damage: called with the step of each newer one that is not whole, and what is wrong with it.
        """
        told: set[int] = set()
        while candidates := [step for step in self.committed() if step not in told]:
            step = candidates[0]
            try:
                checkpoint = self.open(step)
                checkpoint.verify()
            except DamagedError as error:
                if step in self.committed():  # or a run that lives has deleted it, and has a newer one
                    told.add(step)
                    on_damage(step, str(error))
            else:
                return checkpoint
        return None


def blank(size: int) -> memoryview:
    """Memory for a file's content; `bytearray` would hold the interpreter while it fills it with zeros."""
    return memoryview(mmap.mmap(-1, max(size, 1)))[:size]


def step_name(step: int) -> str:
    """The name of a step's checkpoint."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint's name; None for the name of anything else."""
    found = _COMMITTED.fullmatch(name)
    return int(found[1]) if found else None


def _of_another_version(found: object) -> str:
    newer = isinstance(found, int) and found > FORMAT
    version = "a newer version: update this one" if newer else "an older version: use that one"
    return (
        f"{MANIFEST} is of format {found}, this version of the package reads {FORMAT}; it was written by"
        f" {version} to go on, or choose another run_dir; nothing was changed"
    )


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()
