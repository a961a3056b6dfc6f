"""`FolderStore`: checkpoints as directories of a filesystem that all ranks share, committed by fsync and
rename.

A checkpoint is written into `step-N.tmp.<nonce>`: each file is flushed and fsynced, the manifest comes
last, then the directory is fsynced, renamed to `step-N`, and its parent fsynced. Only after that does
`latest` move, and only after that are older checkpoints deleted. A process that dies anywhere in between
leaves the previous checkpoint as it was.
"""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import ClassVar, Final

from trainyard_train.checkpointing.checkpoint import (
    KEEP_THREE,
    LATEST,
    MANIFEST,
    OWNER,
    PIN,
    CheckpointStore,
    InUseError,
    Manifest,
    Retention,
    blank,
    for_each,
    step_name,
    step_of,
)
from trainyard_train.checkpointing.digests import Data, FileEntry, header_size, seal
from trainyard_train.observability.rank_log import log_line

_LEFTOVER: Final = re.compile(rf"(step-\d{{8,}}|{LATEST}|{OWNER})\.(tmp|trash)\.[0-9a-f]+")

_QUARANTINED: Final = re.compile(r"step-\d{8,}\.(damaged|replaced)\.[0-9a-f]+")
_LOCK_SECONDS: Final = 0.2
"""Seconds between two attempts to lock the folder."""
_DIRECT: Final = getattr(os, "O_DIRECT", 0)
"""Flag for writes that bypass the page cache; 0 where the system lacks it (Linux has it)."""
_BLOCK: Final = 4096
"""Bytes: writes past the page cache begin and end at multiples of this, in memory and in the file."""
_PARTS: Final = 1024
"""Maximum number of buffers that one call reads into (IOV_MAX)."""
_LARGE: Final = 1 << 20
"""Bytes from which a write bypasses the page cache; smaller files gain nothing."""


class Files:
    """The calls by which data becomes durable, in one place, so that tests can record or fail them."""

    def make_directory(self, path: Path) -> None:
        """Create a directory; it may exist."""
        path.mkdir(parents=True, exist_ok=True)

    def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        """Create a file with this content and wait until the disk has it.

        Args:
            path: path of the file.
            data: content of the file.
            finish: called before the header is written, which may change it.
        """
        with _named(path), path.open("wb", buffering=0) as file:
            content, descriptor = memoryview(data), file.fileno()
            head = min(-(-header_size(data) // _BLOCK) * _BLOCK, len(content))
            os.lseek(descriptor, head, os.SEEK_SET)
            _write(descriptor, content[head:])
            finish()
            os.lseek(descriptor, 0, os.SEEK_SET)
            _write(descriptor, content[:head])
            os.fsync(descriptor)

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
        """Delete a file, or a directory with its content; missing parts are ignored."""
        while exists(path):
            with suppress(FileNotFoundError):  # another process deletes the same
                shutil.rmtree(path) if path.is_dir() else path.unlink()


def _write(descriptor: int, content: memoryview) -> None:
    done = _write_past_the_cache(descriptor, content) if len(content) >= _LARGE else 0
    while done < len(content):
        done += os.write(descriptor, content[done:])


def _write_past_the_cache(descriptor: int, content: memoryview) -> int:
    """Write whole blocks straight from memory, where that can be done; returns the bytes written.

    To copy them into the page cache takes most of the CPU time of a write, which the training then lacks,
    and drives what it reads out of the cache.
    """
    flags, done = fcntl.fcntl(descriptor, fcntl.F_GETFL), 0
    whole = len(content) - len(content) % _BLOCK
    try:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags | _DIRECT)
        while done < whole:
            done += os.write(descriptor, content[done:whole])
    except OSError as error:
        if error.errno != errno.EINVAL:  # EINVAL: the filesystem does not support direct I/O here
            raise
    finally:
        fcntl.fcntl(descriptor, fcntl.F_SETFL, flags)
    return done


@dataclass(frozen=True)
class FolderStore(CheckpointStore):
    """A folder of checkpoints."""

    has_own_memory: ClassVar[bool] = False
    root: Path
    retention: Retention = KEEP_THREE
    files: Files = field(default_factory=Files)
    _locks: list[int] = field(default_factory=list, init=False, repr=False, compare=False)

    @property
    def where(self) -> str:
        return str(self.root)

    @property
    def backups(self) -> str:
        return f"a snapshot or a backup of the filesystem, into {self.root}"

    def begin(self, step: int) -> str:
        self._make_root()
        staged = f"{step_name(step)}.tmp.{secrets.token_hex(4)}"
        self.files.make_directory(self.root / staged)
        return staged

    def write(self, staged: str, name: str, data: Data) -> FileEntry:
        with ThreadPoolExecutor(1) as pool:  # neither hashing nor waiting for the disk needs the interpreter
            entry = pool.submit(seal, data)
            try:
                self.files.write(self.root / staged / name, data, entry.result)
            except FileNotFoundError as error:
                raise FileNotFoundError(
                    f"{self.root / staged} does not exist: another run has deleted it, or the ranks do not"
                    " share run_dir"
                ) from error
            return entry.result()

    def commit(self, staged: str, manifest: Manifest) -> None:
        source, target = self.root / staged, self.root / step_name(manifest.step)
        self.files.write(source / MANIFEST, manifest.encode())
        self.files.sync_directory(source)
        try:
            self.files.rename(source, target)
        except OSError:
            if not exists(target):
                raise
            if self.holds(manifest):
                self.discard(staged)
            else:
                aside = target.with_name(f"{target.name}.replaced.{secrets.token_hex(4)}")
                self.files.rename(target, aside)
                try:
                    self.files.rename(source, target)
                except OSError:
                    self.files.rename(aside, target)
                    raise
        self.files.sync_directory(self.root)

    def supersede(self, steps: Sequence[int]) -> None:
        for_each(self.remove, steps)
        for_each(self.files.remove_tree, [self.root / name for name in self._names() if ".trash." in name])

    def discard(self, staged: str) -> None:
        with suppress(OSError):
            self.files.remove_tree(self.root / staged)

    def collect_garbage(self) -> None:
        leftovers = [self.root / name for name in self._names() if _LEFTOVER.fullmatch(name)]
        for_each(self.files.remove_tree, leftovers)

    def committed(self) -> list[int]:
        return sorted((step for name in self._names() if (step := step_of(name)) is not None), reverse=True)

    def read(self, name: str) -> bytes:
        with _named(self.root / name):
            return (self.root / name).read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> memoryview:
        content = blank(stop - start)
        return content[: self.read_into(name, start, [content])]

    def read_into(self, name: str, start: int, parts: Sequence[memoryview]) -> int:
        # Not mapped: an error of the disk, or of NFS, would end the process by a signal.
        left, done = deque(parts), 0
        with _named(self.root / name), (self.root / name).open("rb", buffering=0) as file:
            while left and (found := os.preadv(file.fileno(), list(islice(left, _PARTS)), start + done)):
                done += found
                while left and found >= len(left[0]):
                    found -= len(left.popleft())
                if found:
                    left[0] = left[0][found:]
        return done

    def size(self, name: str) -> int | None:
        try:
            return (self.root / name).stat().st_size
        except (FileNotFoundError, NotADirectoryError):
            return None

    def quarantine(self, step: int) -> str:
        quarantined = f"{step_name(step)}.damaged.{secrets.token_hex(4)}"
        self.files.rename(self.root / step_name(step), self.root / quarantined)
        return quarantined

    def quarantined(self) -> list[str]:
        return sorted(name for name in self._names() if _QUARANTINED.fullmatch(name))

    def put(self, name: str, data: Data) -> None:
        path = self.root / name
        staged = path.with_name(f"{path.name}.tmp.{secrets.token_hex(4)}")
        self.files.write(staged, data)
        with suppress(FileNotFoundError):  # another run has started and deleted it; that run writes its own
            self.files.rename(staged, path)
        self.files.sync_directory(path.parent)

    def delete(self, name: str) -> None:
        (self.root / name).unlink(missing_ok=True)

    def pinned(self) -> set[int]:
        return {step for step in self.committed() if exists(self.root / step_name(step) / PIN)}

    def lock(self, seconds: float) -> None:
        try:
            self._make_root()
            descriptor = os.open(self.root / "lock", os.O_RDWR | os.O_CREAT, 0o644)
        except OSError:  # a folder that cannot be written to; saves will say why
            return
        self.unlock()
        self._locks.append(descriptor)
        deadline, reported = time.monotonic() + seconds, False
        while not _lock(descriptor):
            if not reported:
                reported = True
                log_line(f"{self.root} is in use by another run: waiting for its end")
            if time.monotonic() >= deadline:
                self.unlock()
                raise InUseError(
                    f"{self.root} is in use by another run that has not ended within {seconds:g} s: wait for"
                    " it, end it, or choose another run_dir"
                )
            time.sleep(_LOCK_SECONDS)

    def unlock(self) -> None:
        while self._locks:
            os.close(self._locks.pop())

    def capacity(self) -> int | None:
        found = os.statvfs(self.root)
        return found.f_blocks * found.f_frsize

    def remove(self, step: int) -> None:
        path = self.root / step_name(step)
        trash = path.with_name(f"{path.name}.trash.{secrets.token_hex(4)}")
        with suppress(FileNotFoundError):  # another run has deleted it
            self.files.rename(path, trash)  # a half-deleted checkpoint must not look like a committed one
        self.files.remove_tree(trash)

    def _make_root(self) -> None:
        if not exists(self.root):
            self.files.make_directory(self.root)
            self.files.sync_directory(self.root.parent)

    def _names(self) -> list[str]:
        """Names in the folder; an error is no proof that there is none, as it is for `Path.is_dir`."""
        try:
            return [path.name for path in self.root.iterdir()]
        except FileNotFoundError:
            return []


def exists(path: Path) -> bool:
    """Whether a path exists. From Python 3.14 on, `Path.exists` is false for any error.

    Raises:
        OSError: that is unknown.
    """
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _lock(descriptor: int) -> bool:
    """Lock a file for this process alone; returns whether no other process has it.

    A lock of POSIX ends with its process, also on another node of NFS or Lustre, and forks do not inherit it.
    """
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        return error.errno not in {errno.EAGAIN, errno.EACCES}  # else the filesystem has no locks
    return True


@contextmanager
def _named(path: Path) -> Iterator[None]:
    """Name the file in errors of calls that only know its descriptor."""
    try:
        yield
    except OSError as error:
        if error.filename is None and error.errno is not None:
            raise OSError(error.errno, error.strerror, str(path)) from error
        raise
