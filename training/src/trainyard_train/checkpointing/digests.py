"""Digests of checkpoint files: the file's header has the XXH3 of each block, and the manifest has the SHA-256
of the header, or of a file that has no block digests.

So a part of a file can be verified without the rest. XXH3 (128 bits) detects what a disk, a network or a torn
write has altered, and takes an eighth of SHA-256's CPU time (`python -m benchmarks checkpoints`). Neither
protects against an attacker: whoever may write the files may write the manifest as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, Protocol

import xxhash

Data = bytes | memoryview
"""The content of a file."""
BLOCK: Final = 8 << 20
"""Bytes per digest; a block is read by one request and sent by one message."""


class Hash(Protocol):
    """A hash in progress, as hashlib has it."""

    def update(self, data: Data, /) -> None: ...

    def hexdigest(self) -> str: ...


class Algorithm(NamedTuple):
    """Algorithm of a digest: its name and its hash function."""

    name: str
    """Name of the algorithm, as headers have it."""
    new: Callable[[], Hash]
    characters: int
    """Number of hexadecimal characters of a digest."""

    @property
    def start(self) -> bytes:
        """First bytes of a header with room for such digests, after its length of 8 bytes."""
        return b'{"__metadata__": {"%s": "' % self.name.encode()

    def of(self, *parts: Data) -> str:
        """The digest of some data, one part after the other."""
        found = self.new()
        for part in parts:
            found.update(part)
        return found.hexdigest()


SHA256: Final = Algorithm("sha256", hashlib.sha256, 64)
XXH3: Final = Algorithm("xxh3_128", xxhash.xxh3_128, 32)
BLOCK_ALGORITHMS: Final = (XXH3, SHA256)
"""Algorithms that are read for blocks; the first is also written. Checkpoints of format 4 use SHA-256."""


class Digest(NamedTuple):
    """Expected digest of some data."""

    algorithm: Algorithm
    value: str

    def matches(self, *parts: Data) -> bool:
        """Whether this is the digest of these data, one part after the other."""
        return self.algorithm.of(*parts) == self.value


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes and sha256 of one file."""

    size: int
    sha256: str
    header: int = 0
    """Bytes of the header that the SHA-256 covers, which has the digest of each block; 0: it covers the whole
    file."""

    @staticmethod
    def of(data: Data) -> FileEntry:
        """The entry of a file with this content."""
        return FileEntry(len(data), SHA256.of(data))

    @property
    def digest(self) -> Digest:
        """Digest of the header if that has the blocks' digests, else of the whole file."""
        return Digest(SHA256, self.sha256)


def room_for_digests(size: int) -> dict[str, str]:
    """Metadata that must come first in a header, as room for the digests that `seal` writes.

    Args:
        size: bytes after the header.
    """
    return {XXH3.name: "0" * (XXH3.characters * -(-size // BLOCK))}


def header_size(data: Data) -> int:
    """Bytes of the header of a file with room for the digests of its blocks; 0 for any other."""
    size = 8 + int.from_bytes(data[:8], "little")
    return size if _algorithm_of(data) and size <= len(data) else 0


def seal(data: Data) -> FileEntry:
    """Write the digests of a file's blocks into its header, where it has room for them; returns its entry."""
    header = header_size(data)
    if not header or isinstance(data, bytes) or data.readonly:
        return FileEntry.of(data)
    digests = "".join(XXH3.of(data[at : at + BLOCK]) for at in range(header, len(data), BLOCK)).encode()
    first = 8 + len(XXH3.start)
    last = first + len(digests)
    if _algorithm_of(data) is not XXH3 or bytes(data[last : last + 1]) != b'"':  # room for other digests
        return FileEntry.of(data)
    data[first:last] = digests
    return FileEntry(len(data), SHA256.of(data[:header]), header)


def digests_of(header: Data) -> list[Digest]:
    """The digests that `seal` wrote, of each block in order; empty if there are none."""
    if not (algorithm := _algorithm_of(header)):
        return []
    text = bytes(header[8 + len(algorithm.start) :]).partition(b'"')[0].decode()
    step = algorithm.characters
    return [Digest(algorithm, text[at : at + step]) for at in range(0, len(text), step)]


def _algorithm_of(header: Data) -> Algorithm | None:
    starts = ((each, each.start) for each in BLOCK_ALGORITHMS)
    return next((each for each, start in starts if bytes(header[8 : 8 + len(start)]) == start), None)
