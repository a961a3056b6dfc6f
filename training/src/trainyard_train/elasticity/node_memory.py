"""Keeps the newest checkpoint in memory files of a node's agent, for ranks that the agent restarts in place
(docs/dev/training-design.md, "A restart reads memory").

The agent makes two memory files for each of its ranks before it forks, and never reads them. If memory is
short, a rank has only one file, or none. The files end with the agent.
"""

from __future__ import annotations

import hashlib
import mmap
import os
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

FILES: Final = "TRAINYARD_NODE_MEMORY"
"""The descriptors of the node's memory files, and this process's local rank, such as `5,6,7,8:1`."""
_EACH: Final = 2
"""Memory files of each rank."""
_LENGTH: Final = 8
"""Bytes at the start of a safetensors file that hold the length of its header."""
_SHARE: Final = 0.5
"""Share of the available memory that second files may take."""
_MEMORY: Final = Path("/proc/meminfo")
_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass
class MemoryFile:
    """One memory file."""

    descriptor: int
    _mapped: memoryview | None = field(default=None, init=False)

    @property
    def size(self) -> int:
        """Size of the file in bytes."""
        return os.fstat(self.descriptor).st_size

    def writable(self, size: int) -> memoryview:
        """Map the whole file for writing, with this size from now on; reuses a mapping of the size."""
        if self._mapped is None or len(self._mapped) != size:
            self._mapped = None
            os.ftruncate(self.descriptor, size)
            memory = mmap.mmap(self.descriptor, size)
            assert hasattr(mmap, "MADV_HUGEPAGE")
            with suppress(OSError):  # the kernel may not support huge pages for memory files
                memory.madvise(mmap.MADV_HUGEPAGE)
            self._mapped = memoryview(memory)
        return self._mapped

    def read(self) -> memoryview:
        """Content of the file, without a copy; valid until its rank captures again."""
        return memoryview(mmap.mmap(self.descriptor, 0, access=mmap.ACCESS_READ))

    def digest(self) -> str:
        """SHA-256 of the header of the file in memory; empty if there is none."""
        if self.size < _LENGTH:
            return ""
        content = self.read()
        header = _LENGTH + int.from_bytes(content[:_LENGTH], "little")
        return hashlib.sha256(content[:header]).hexdigest() if header <= len(content) else ""

    def clear(self) -> None:
        """Give its memory back."""
        self._mapped = None
        os.ftruncate(self.descriptor, 0)


@dataclass
class NodeMemory:
    """The memory files of a node, as one of its ranks has them; without an agent there are none."""

    files: tuple[MemoryFile, ...] = ()
    local_rank: int = 0
    limit_bytes: int | None = None
    """Limit for all files of the node together, in bytes; None: depends on the available memory."""
    _committed: MemoryFile | None = field(default=None, init=False)
    """File with this rank's part of the newest committed checkpoint."""
    _captured: MemoryFile | None = field(default=None, init=False)
    """File with the last capture."""
    _count: tuple[int, int] = field(default=(0, 0), init=False)
    """Size of the captures, and the number of files that this rank may use for them."""

    @staticmethod
    def of(limit_gib: float | None = None, environment: Mapping[str, str] = os.environ) -> NodeMemory:
        """The node memory of this process.

        Args:
            limit_gib: limit for all ranks of the node together; None: depends on the available memory.
            environment: variables of this process.
        """
        descriptors, _, local_rank = environment.get(FILES, "").partition(":")
        files = tuple(MemoryFile(int(each)) for each in descriptors.split(",") if each)
        limit = None if limit_gib is None else int(limit_gib * 2**30)
        return NodeMemory(files, int(local_rank or 0), limit)

    @property
    def own(self) -> tuple[MemoryFile, ...]:
        """The memory files of this rank."""
        return self.files[_EACH * self.local_rank : _EACH * (self.local_rank + 1)]

    def room(self, size: int) -> memoryview | None:
        """Memory for a capture of so many bytes; None if the node's memory has no room for it."""
        if self._count[0] != size:
            self._count = size, self._allowed(size)
        count = self._count[1]
        if not count:
            self._captured = None
            self._clear_but(None)
            return None
        self._captured = next((each for each in self.own if each is not self._committed), None)
        if count == 1:  # each capture overwrites the committed one, which then is in the store only
            self._captured = self._committed or self._captured
            self._clear_but(self._captured)
        return self._captured.writable(size) if self._captured else None

    def commit(self) -> None:
        """The last capture is of a checkpoint that is committed now."""
        self._committed = self._captured or self._committed

    def find(self, digests: Mapping[str, str]) -> dict[str, memoryview]:
        """Contents of a checkpoint's files that ranks of this node have captured, by name.

        Args:
            digests: sha256 of each file's header, in which is that of each block of the rest, by its name.
        """
        captured = {digest: (each, each.read()) for each in self.files if (digest := each.digest())}
        found = {name: captured[digest] for name, digest in digests.items() if digest in captured}
        self._committed = next((each for each, _ in found.values() if each in self.own), self._committed)
        return {name: content for name, (_, content) in found.items()}

    def _clear_but(self, retained: MemoryFile | None) -> None:
        for each in self.own:
            if each is not retained:
                each.clear()
        if self._committed is not retained:
            self._committed = None

    def _allowed(self, size: int) -> int:
        """Number of files of this size that this rank may use, if the node's other ranks use as many."""
        if not self.own:
            return 0
        of_each = size * len(self.files) // _EACH
        if self.limit_bytes is not None:
            return min(_EACH, self.limit_bytes // max(1, of_each))
        have = sum(each.size == size for each in self.own)
        return _EACH if have == _EACH or of_each <= _SHARE * available_bytes() else 1


def create(ranks: int) -> tuple[int, ...]:
    """Create empty memory files for so many ranks, which inherit the descriptors; an agent calls it."""
    assert hasattr(os, "memfd_create")  # as on Linux, where agents are
    return tuple(os.memfd_create(f"checkpoint-{number}") for number in range(_EACH * ranks))


def environment(descriptors: tuple[int, ...], local_rank: int) -> dict[str, str]:
    """Variables by which a rank finds its memory files."""
    return {FILES: f"{','.join(map(str, descriptors))}:{local_rank}"}


def available_bytes(meminfo: Path = _MEMORY, cgroup: Path = _CGROUP) -> int:
    """Memory that this host, or this pod where it has a limit (cgroup v2), could still give out."""
    lines = dict(line.split(":") for line in meminfo.read_text().splitlines())
    free = int(lines["MemAvailable"].split()[0]) << 10
    with suppress(OSError, ValueError, KeyError):  # ValueError: the limit is `max`
        limit, used = (int((cgroup / f"memory.{name}").read_text()) for name in ("max", "current"))
        cached = dict(line.split() for line in (cgroup / "memory.stat").read_text().splitlines())
        free = min(free, limit - used + int(cached["inactive_file"]))
    return max(0, free)
