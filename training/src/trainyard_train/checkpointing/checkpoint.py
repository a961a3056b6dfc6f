"""The format of checkpoints and the interface of their stores: manifest, verified reads, atomic commit,
retention, and quarantine of damaged checkpoints.

A checkpoint is a set of files and a manifest, which is written last and lists the size and the digest of each
file (see `digests`). Loading verifies all data that it reads, and uses the newest undamaged checkpoint. The
stores are `folder_store` (a folder that the ranks share) and `object_store` (S3 and other object stores).

Nothing here needs PyTorch.
"""

from __future__ import annotations

import errno
import json
import mmap
import re
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from itertools import cycle
from typing import Any, ClassVar, Final, TypeVar

from trainyard_train.checkpointing.digests import (
    BLOCK,
    SHA256,
    Data,
    Digest,
    FileEntry,
    digests_of,
)
from trainyard_train.config_base import RefusalError
from trainyard_train.contract import origin_of

T = TypeVar("T")

MANIFEST: Final = "manifest.json"
LATEST: Final = "latest"
PIN: Final = "pin.json"
"""Name of the file in a checkpoint that keeps it, with the reason."""
OWNER: Final = "owner"
"""Name of the file that says which attempt may commit: the one that has loaded last."""
FORMAT: Final = 5
_NO_SPACE: Final = re.compile(r"status[a-z ]*: 507|quota|no space", re.I)
"""The error of an object store that is full."""
_FULL: Final = "the filesystem is full: free space, or lower checkpoint.keep_last"
_DENIED: Final = "check the owner and the permissions of the folder"
_ADVICE: Final = {
    errno.EIO: "a disk or a server of the filesystem has failed: check the filesystem and this host's log",
    errno.ESTALE: "the mount is stale: mount the filesystem again, or start on another node",
    errno.EROFS: "the filesystem is mounted read-only: check why, and mount it again",
    errno.ENOSPC: _FULL,
    errno.EDQUOT: "the quota is used up: free space, raise it, or lower checkpoint.keep_last",
    errno.EACCES: _DENIED,
    errno.EPERM: _DENIED,
    errno.ETIMEDOUT: "the server of the filesystem does not answer: check it and the network",
    errno.EHOSTUNREACH: "the server of the filesystem cannot be reached: check it and the network",
}
"""Advice to the user, by the number of the error."""
_COMMITTED: Final = re.compile(r"step-(\d{8,})")


class DamagedError(ValueError):
    """A checkpoint differs from its manifest. The message names the file and the difference."""


class InUseError(RefusalError):
    """Another run uses the store."""


class UnreadableError(OSError):
    """A store, or a checkpoint in it, cannot be read now; that does not mean that it is damaged."""


class FormatError(RefusalError):
    """A checkpoint was written by another version of this package; nothing is wrong with it."""


@dataclass(frozen=True)
class Manifest:
    """Manifest of a checkpoint: its files with their digests, and its position in the run."""

    step: int
    """Optimizer steps that the checkpoint contains."""
    samples: int
    """Samples that were consumed: the cursor in the global order of samples."""
    world_size: int
    mesh: Mapping[str, int]
    """Size of each dimension of the device mesh."""
    schedule: Mapping[str, Any]
    """State of the learning rate (see `trainyard_train.optim.schedule.Schedule`)."""
    identity: Mapping[str, Any]
    """Values that a run must have in common with this checkpoint to resume from it."""
    files: Mapping[str, FileEntry] = field(default_factory=dict)
    loss_scale: Mapping[str, Any] = field(default_factory=dict)
    """State of the loss scale, with float16 (see `trainyard_train.update.LossScale`)."""
    state: Mapping[str, Any] = field(default_factory=dict)
    """Description of the objects that a `Run` tracks (see `checkpointing.tracked.merge`); empty in other
    runs, and then not written."""
    draft: str = ""
    """Location of the files relative to the manifest; empty if they are beside it."""
    created: float = field(default_factory=time.time)
    """Unix time at which the manifest was created; informational."""
    origin: Mapping[str, Any] = field(default_factory=origin_of)
    """Origin of the run (see `contract.ORIGIN`); informational, empty where unknown."""

    def encode(self) -> bytes:
        """JSON with a checksum of itself, since a flipped bit may hit the manifest too."""
        body = {"format": FORMAT, **asdict(self)}
        if not self.state:
            del body["state"]
        if not self.origin:
            del body["origin"]
        return json.dumps({**body, "sha256": _digest(body)}, indent=1).encode()

    @staticmethod
    def decode(data: bytes) -> Manifest:
        """Read what `encode` wrote.

        Raises:
            DamagedError: the manifest is not JSON, or was altered.
            FormatError: another version wrote it.
        """
        try:
            body = json.loads(data)
            stated = body.pop("sha256")
            if stated != _digest(body):  # a flipped bit must not look like another format version
                raise DamagedError(f"{MANIFEST} was altered: its own checksum does not match")
            if (found := body.pop("format")) != FORMAT:
                raise FormatError(_of_another_version(found))
            body = {"origin": {}, **body}
            return Manifest(**{**body, "files": {n: FileEntry(**e) for n, e in body["files"].items()}})
        except (DamagedError, FormatError):
            raise
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise DamagedError(f"{MANIFEST} cannot be read: {error}") from None


@dataclass
class Held:
    """Files of a checkpoint that the node's memory holds, and the bytes that the store still had to give."""

    files: dict[str, memoryview] = field(default_factory=dict)
    """Content of files by name; it is verified like content from the store."""
    bytes_from_store: int = 0
    """Bytes that all ranks together read from the store when the checkpoint was loaded."""


@dataclass(frozen=True)
class Checkpoint:
    """One committed checkpoint."""

    manifest: Manifest
    store: CheckpointStore = field(compare=False)
    held: Held = field(default_factory=Held, compare=False)

    @property
    def name(self) -> str:
        """Name of the checkpoint in its store."""
        return step_name(self.manifest.step)

    def file(self, name: str) -> StoredFile:
        """A file of the checkpoint, to be read in parts.

        Raises:
            DamagedError: the manifest does not list it.
        """
        entry = self.manifest.files.get(name)
        if entry is None:
            raise DamagedError(f"{MANIFEST} does not list {name}")
        path = "/".join(filter(None, (self.name, self.manifest.draft, name)))
        return StoredFile(name, path, entry, self.store, self.held.files.get(name))

    def readers(self, world_size: int) -> dict[str, int]:
        """File → the rank that verifies it for all; at an unchanged world size, the rank that wrote it."""
        return {name: number % world_size for number, name in enumerate(sorted(self.manifest.files))}

    def verify(self, names: Sequence[str] | None = None) -> None:
        """Read files once, block by block, and compare them with the manifest.

        Args:
            names: names of the files; None: all.

        Raises:
            DamagedError: for the first file that differs.
        """
        for name in self.manifest.files if names is None else names:
            for _ in self.file(name).blocks():
                pass


@dataclass(frozen=True)
class StoredFile:
    """One file of a checkpoint; its data are compared with its digests when they are read."""

    name: str
    path: str
    """Path of the file, relative to the store."""
    entry: FileEntry
    store: CheckpointStore
    held: memoryview | None = field(default=None, compare=False)
    """Content of the file in this node's memory; None if the memory does not have the file."""

    def check_size(self) -> None:
        """Compare its size. Raises DamagedError: missing, or of another size."""
        found = self.store.size(self.path)
        if found is None:
            raise DamagedError(f"{self.name} is missing")
        if found != self.entry.size:
            raise DamagedError(f"{self.name} has {found} bytes, the manifest says {self.entry.size}")

    def read(self, start: int, stop: int) -> memoryview:
        """Some bytes, of which nothing is known but their number.

        Raises:
            DamagedError: the bytes do not exist.
        """
        if start == stop:
            return memoryview(b"")
        try:
            data = self.store.read_range(self.path, start, stop)
        except FileNotFoundError:
            raise DamagedError(f"{self.name} is missing") from None
        if len(data) != stop - start:
            raise DamagedError(f"{self.name} has no bytes {start + len(data)} to {stop}")
        return memoryview(data)

    def read_into(self, start: int, parts: Sequence[memoryview]) -> None:
        """Some bytes, one part after the other, of which nothing is known but their number.

        Raises:
            DamagedError: the bytes do not exist.
        """
        try:
            count = self.store.read_into(self.path, start, parts)
        except FileNotFoundError:
            raise DamagedError(f"{self.name} is missing") from None
        if count != (size := sum(map(len, parts))):
            raise DamagedError(f"{self.name} has no bytes {start + count} to {start + size}")

    def header(self) -> memoryview:
        """The header. Raises DamagedError: missing, or altered."""
        return self._verified(0, self.entry.header, self.entry.digest)

    def ranges(self) -> list[tuple[int, int]]:
        """Start and end of each block in the file, after the header."""
        first, size = self.entry.header, self.entry.size
        return [(begin, min(begin + BLOCK, size)) for begin in range(first, size, BLOCK)]

    def block_at(self, position: int) -> int:
        """The number of the block that a byte is in."""
        return (position - self.entry.header) // BLOCK

    def blocks(self) -> Iterator[tuple[int, memoryview]]:
        """Yield all of the file in order, each part verified, with its start.

        A part is good until the next one is asked for, which takes its memory.

        Raises:
            DamagedError: missing, of another size, or altered.
        """
        self.check_size()
        numbers = range(len(self.ranges()))
        data = self.header()
        yield 0, data
        digests = digests_of(data)
        yield from ahead(lambda number, room: self.block(number, digests, room), numbers, self.store)

    def block(
        self, number: int, digests: Sequence[Digest], room: memoryview | None = None
    ) -> tuple[int, memoryview]:
        """Read and verify a block; returns its start and content.

        Args:
            number: from 0.
            digests: digests of all blocks.
            room: memory to read into; None: memory of the store's choice.

        Raises:
            DamagedError: missing, or altered.
        """
        start, stop = self.ranges()[number]
        return start, self._verified(start, stop, digests[number], room)

    def put_block(self, number: int, digest: Digest, parts: Sequence[memoryview]) -> None:
        """Read a block to where its bytes go.

        Raises:
            DamagedError: missing, or altered; the parts then have the altered bytes.
        """
        self.read_into(self.ranges()[number][0], parts)
        self._verify(digest, *parts)

    def is_held(self, data: memoryview) -> bool:
        """Whether the data were read from this node's memory, and not from the store."""
        return self.held is not None and data.obj is self.held.obj

    def _verified(self, start: int, stop: int, digest: Digest, room: memoryview | None = None) -> memoryview:
        """Some bytes that have a digest: from this node's memory, unless they differ there."""
        if self.held is not None:
            data = self.held[start:stop]
            if digest.matches(data):
                return data
        if room is None or start == stop:
            data = self.read(start, stop)
        else:
            data = room[: stop - start]
            self.read_into(start, [data])
        self._verify(digest, data)
        return data

    def _verify(self, digest: Digest, *parts: Data) -> None:
        if not digest.matches(*parts):
            algorithm = digest.algorithm.name
            raise DamagedError(f"{self.name} was altered: its {algorithm} does not match the manifest")


@dataclass(frozen=True)
class Retention:
    """Rule that decides which checkpoints are retained."""

    last: int = 3
    """Number of the newest checkpoints that are retained."""
    every_steps: int = 0
    """Steps between checkpoints that are never deleted; 0: none."""
    tag: bool = False
    """Whether superseded checkpoints are marked, so that the bucket deletes them later, instead of
    deleted."""

    def superseded(self, order: Sequence[int], spared: Collection[int] = ()) -> list[int]:
        """The steps whose checkpoints may be deleted.

        Args:
            order: steps of committed checkpoints, from the one that was verified last to the oldest.
            spared: steps that are never deleted.
        """
        return [step for step in order[self.last :] if not self.is_permanent(step) and step not in spared]

    def is_permanent(self, step: int) -> bool:
        """Whether a step's checkpoint is never deleted."""
        return self.every_steps > 0 and step % self.every_steps == 0


KEEP_THREE: Final = Retention()


class CheckpointStore(ABC):
    """Store of a run's checkpoints. All ranks write; only rank 0 begins, commits, prunes and cleans up.

    Every call may raise OSError: then nothing that was committed is lost.
    """

    retention: Retention
    reads_ahead: ClassVar[int] = 2
    """Number of blocks that are read ahead while another is processed."""
    has_own_memory: ClassVar[bool] = True
    """Whether reads return memory of the store's client, so that reading into given memory would be a
    copy."""

    @property
    @abstractmethod
    def where(self) -> str:
        """Location of the store, for messages."""

    @abstractmethod
    def begin(self, step: int) -> str:
        """Return the name of a new staging folder, which loads ignore."""

    @abstractmethod
    def write(self, staged: str, name: str, data: Data) -> FileEntry:
        """Write one file into the staging folder durably; any rank may, with names that differ by rank."""

    @abstractmethod
    def commit(self, staged: str, manifest: Manifest) -> None:
        """Commit the staging folder as a checkpoint: once this returns, it is durable.

        Every file of the manifest must have been written. A checkpoint of the same step with the same
        content stands, and the staging folder is deleted; one with other content is set aside.
        """

    def clean_up(self, order: Sequence[int]) -> None:
        """After a commit: update `latest`, then delete checkpoints that the retention does not cover.

        Later checkpoints may be written and committed meanwhile.

        Args:
            order: steps that this run knows, from the one that was committed last to the oldest. Others, such
                as those of another run, are left alone.
        """
        self.point_latest_at(order[0])
        there = set(self.committed())
        known = [step for step in order if step in there]
        superseded = self.retention.superseded(known, self.pinned())
        self.spare(set(known).difference(superseded))
        self.supersede(superseded)

    def spare(self, steps: Collection[int], *, copied: bool = False) -> None:  # noqa: B027 -- most have no marks
        """Take the marks for the bucket's rule off what is retained again, or was `copied` with its marks."""

    @abstractmethod
    def supersede(self, steps: Sequence[int]) -> None:
        """Delete checkpoints, or mark them for the bucket's rule."""

    @abstractmethod
    def remove(self, step: int) -> None:
        """Delete a checkpoint; it does not look committed while that goes on."""

    @abstractmethod
    def pinned(self) -> set[int]:
        """Steps of checkpoints that are never deleted."""

    def pins(self) -> dict[int, Mapping[str, Any]]:
        """Why checkpoints are never deleted, by step."""
        return {step: json.loads(self.read(_pin_of(step))) for step in self.pinned()}

    def pin(self, step: int, why: Mapping[str, Any]) -> None:
        """Keep a checkpoint from the retention, and so from the bucket's rule."""
        self.put(_pin_of(step), json.dumps(why).encode())

    def unpin(self, step: int) -> None:
        """Leave a checkpoint to the retention."""
        self.delete(_pin_of(step))

    @abstractmethod
    def delete(self, name: str) -> None:
        """Delete a small file; it may be missing."""

    def lock(self, seconds: float) -> None:  # noqa: B027 -- object stores have no locks
        """Exclude other processes from the store until `unlock`, where it has locks.

        Raises:
            InUseError: another process has it, and still has after so many seconds.
        """

    def unlock(self) -> None:  # noqa: B027
        """Admit other processes; a second call does nothing."""

    def capacity(self) -> int | None:
        """Bytes that the store can hold in all; None if it has no such limit, or that is unknown."""
        return None

    def holds(self, manifest: Manifest) -> bool:
        """Whether the checkpoint of this step has the same files. Raises OSError if that is unknown."""
        try:
            return self.open(manifest.step).manifest.files == manifest.files
        except ValueError:
            return False

    @abstractmethod
    def discard(self, staged: str) -> None:
        """Delete a staging folder; never raises."""

    @abstractmethod
    def collect_garbage(self) -> None:
        """Delete staging data of runs that died. A live writer of another run commits nothing then."""

    @abstractmethod
    def committed(self) -> list[int]:
        """The steps of committed checkpoints, newest first, unverified."""

    @abstractmethod
    def read(self, path: str) -> bytes:
        """The content of a small file. Raises FileNotFoundError: the file does not exist."""

    @abstractmethod
    def read_range(self, path: str, start: int, stop: int) -> Data:
        """Some bytes of a file; fewer if it is shorter. Several threads may call it at once.

        No call holds Python's interpreter for long, since heartbeats and preemption notices need it.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def read_parts(self, parts: Sequence[tuple[str, int, int]]) -> Sequence[Data]:
        """Parts of many files, each given by name, start and end."""
        return [self.read_range(*part) for part in parts]

    def read_into(self, path: str, start: int, parts: Sequence[memoryview]) -> int:
        """Some bytes of a file, one part after the other; returns how many there were.

        Raises:
            FileNotFoundError: the file does not exist.
        """
        data = memoryview(self.read_range(path, start, start + sum(map(len, parts))))
        done = 0
        for part in parts:
            found = data[done : done + len(part)]
            part[: len(found)] = found
            done += len(found)
        return done

    @abstractmethod
    def size(self, path: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""

    @abstractmethod
    def quarantine(self, step: int) -> str:
        """Take a damaged checkpoint out, so that its step can be saved again; returns its new name."""

    @abstractmethod
    def quarantined(self) -> list[str]:
        """Names of checkpoints that were taken out."""

    @property
    @abstractmethod
    def backups(self) -> str:
        """Where former content of the store may be found, for messages."""

    @abstractmethod
    def put(self, name: str, data: Data) -> None:
        """Write a small file; it appears whole or not at all."""

    def point_latest_at(self, step: int) -> None:
        """Let `latest` name a checkpoint."""
        self.put(LATEST, step_name(step).encode())

    def open(self, step: int) -> Checkpoint:
        """Read a checkpoint's manifest. Raises DamagedError: the manifest is missing or damaged."""
        try:
            manifest = Manifest.decode(self.read(f"{step_name(step)}/{MANIFEST}"))
        except FileNotFoundError:
            raise DamagedError(f"{MANIFEST} is missing") from None
        if manifest.step != step:
            raise DamagedError(f"{MANIFEST} is of step {manifest.step}")
        return Checkpoint(manifest, self)

    def newest(
        self,
        on_damage: Callable[[int, str], None],
        read: Callable[[Checkpoint], object] = Checkpoint.verify,
    ) -> Checkpoint | None:
        """The newest checkpoint that is whole; None if there is none.

        Args:
            on_damage: called with the step of each newer one that is not whole, and what is wrong with it.
            read: reads all of a checkpoint; raises DamagedError if it is not whole.
        """
        reported: set[int] = set()
        while candidates := [step for step in self.committed() if step not in reported]:
            step = candidates[0]
            try:
                checkpoint = self.open(step)
                read(checkpoint)
            except DamagedError as error:
                if step in self.committed():  # or a running process has deleted it, and has a newer one
                    reported.add(step)
                    on_damage(step, str(error))
            else:
                return checkpoint
        return None


def ahead(
    read: Callable[[int, memoryview | None], T], numbers: Iterable[int], store: CheckpointStore
) -> Iterator[T]:
    """Yield a function's result for each number, in order, while threads compute the next few.

    Args:
        read: takes a number, and a buffer for a block, which is reused once the next result is asked for:
            to touch new memory takes several times as long as to read into existing memory. The buffer is
            None where the store's client allocates it.
        numbers: in order.
        store: store that is read.
    """
    count = 0 if store.has_own_memory else store.reads_ahead + 1
    rooms = cycle([blank(BLOCK) for _ in range(count)] or [None])
    with ThreadPoolExecutor(store.reads_ahead) as pool:
        waiting: deque[Future[T]] = deque()
        for number in numbers:
            waiting.append(pool.submit(read, number, next(rooms)))
            if len(waiting) > store.reads_ahead:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()


def for_each(work: Callable[[T], object], items: Iterable[T]) -> None:
    """Do the work for all, whatever fails. Raises OSError: the first one."""
    errors = []
    for item in items:
        try:
            work(item)
        except OSError as error:
            errors.append(error)
    if errors:
        raise errors[0]


def blank(size: int) -> memoryview:
    """Allocate memory for a file's content; `bytearray` would hold the GIL while it fills it with zeros."""
    return memoryview(mmap.mmap(-1, max(size, 1), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS))[:size]


def step_name(step: int) -> str:
    """The name of a step's checkpoint."""
    return f"step-{step:08d}"


def _pin_of(step: int) -> str:
    return f"{step_name(step)}/{PIN}"


def step_of(name: str) -> int | None:
    """The step of a checkpoint's name; None for the name of anything else."""
    found = _COMMITTED.fullmatch(name)
    return int(found[1]) if found else None


def explained(error: OSError) -> str:
    """An error of a filesystem or a store, with what to do."""
    advice = _ADVICE.get(error.errno or 0)
    return f"{error}; {advice}" if advice else str(error)


def is_full(error: OSError) -> bool:
    """Whether a filesystem or a store has no space, or its quota is used up."""
    return error.errno in {errno.ENOSPC, errno.EDQUOT} or bool(_NO_SPACE.search(str(error)))


def _of_another_version(found: object) -> str:
    newer = isinstance(found, int) and found > FORMAT
    advice = "update this package" if newer else "resume with the older package that wrote it"
    return (
        f"{MANIFEST}: got format {found}; allowed: {FORMAT}, the format of this version of the package;"
        f" {advice}, or choose another run_dir; nothing was changed"
    )


def _digest(body: Mapping[str, Any]) -> str:
    return SHA256.of(json.dumps(body, sort_keys=True).encode())
