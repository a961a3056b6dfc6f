"""Digests of checkpoint files: the file's header has the XXH3 of each block, and the manifest has the SHA-256
of the header. A file without room for digests in its header, as of other programs, counts as a header alone.

So a part of a file can be verified without the rest. XXH3 (128 bits) detects what a disk, a network or a torn
write has altered, and takes an eighth of SHA-256's CPU time (`python -m benchmarks checkpoints`). Neither
protects against an attacker: whoever may write the files may write the manifest as well.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import xxhash

Data = bytes | memoryview
"""The content of a file."""
BLOCK: Final = 8 << 20
"""Bytes per digest; a block is read by one request and sent by one message."""


class Algorithm(NamedTuple):
    """Algorithm of a digest: its name and its hash function."""

    name: str
    """Name of the algorithm, as headers have it."""
    new: Callable[[], Any]

    def of(self, *parts: Data) -> str:
        """The digest of some data, one part after the other, in hexadecimal."""
        found = self.new()
        for part in parts:
            found.update(part)
        digest: str = found.hexdigest()
        return digest


SHA256: Final = Algorithm("sha256", hashlib.sha256)
XXH3: Final = Algorithm("xxh3_128", xxhash.xxh3_128)
_CHARACTERS: Final = 32
"""Number of hexadecimal characters of the digest of a block."""
_START: Final = b'{"__metadata__": {"%s": "' % XXH3.name.encode()
"""First bytes of a header with room for such digests, after its length of 8 bytes."""


class Digest(NamedTuple):
    """Expected digest of some data."""

    algorithm: Algorithm
    value: str

    def matches(self, *parts: Data) -> bool:
        """Whether this is the digest of these data, one part after the other."""
        return self.algorithm.of(*parts) == self.value


@dataclass(frozen=True)
class FileEntry:
    """Size in bytes of one file, and the digest of its header."""

    size: int
    sha256: str
    header: int
    """Bytes of the header, which has the digest of each block of the rest."""

    @property
    def digest(self) -> Digest:
        """Digest of the header."""
        return Digest(SHA256, self.sha256)


def room_for_digests(size: int) -> dict[str, str]:
    """Metadata that must come first in a header, as room for the digests that `seal` writes.

    Args:
        size: bytes after the header.
    """
    return {XXH3.name: "0" * (_CHARACTERS * -(-size // BLOCK))}


def header_size(data: Data) -> int:
    """Bytes of the header of a file with room for the digests of its blocks; 0 for any other."""
    size = 8 + int.from_bytes(data[:8], "little")
    return size if _has_room(data) and size <= len(data) else 0


def seal(data: Data) -> FileEntry:
    """Write the digests of a file's blocks into its header, where it has room for them; returns its entry."""
    header = header_size(data)
    if header and isinstance(data, memoryview) and not data.readonly:
        digests = "".join(XXH3.of(data[at : at + BLOCK]) for at in range(header, len(data), BLOCK)).encode()
        first = 8 + len(_START)
        last = first + len(digests)
        if bytes(data[last : last + 1]) == b'"':  # else the room is for other digests
            data[first:last] = digests
            return FileEntry(len(data), SHA256.of(data[:header]), header)
    return FileEntry(len(data), SHA256.of(data), len(data))


def digests_of(header: Data) -> list[Digest]:
    """The digests that `seal` wrote, of each block in order; empty if there are none."""
    if not _has_room(header):
        return []
    text = bytes(header[8 + len(_START) :]).partition(b'"')[0].decode()
    return [Digest(XXH3, text[at : at + _CHARACTERS]) for at in range(0, len(text), _CHARACTERS)]


def _has_room(data: Data) -> bool:
    return bytes(data[8 : 8 + len(_START)]) == _START
