"""`Location`: reads and writes files in a folder or an object store, through one interface."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final, Protocol

FileRange = tuple[str, int, int]
"""Part of a file: its name, the first byte, and the end (exclusive)."""


class Location(Protocol):
    """Files by their names, which are paths seen from here. Any number of threads may read."""

    def names(self) -> Iterator[str]:
        """Names of all files, in no order."""

    def size(self, name: str) -> int | None:
        """Size of a file in bytes; None if it does not exist."""

    def read(self, name: str) -> bytes:
        """Read all of a file.

        Raises:
            FileNotFoundError: the file does not exist.
        """

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        """Some bytes of a file; fewer where it ends before."""

    def read_parts(self, parts: Sequence[FileRange]) -> list[bytes]:
        """Read parts of files; from a store all at once."""

    def write(self, name: str, data: bytes) -> None:
        """Write a file; it appears whole or not at all."""


STORE_SECONDS: Final = 60.0
"""Default timeout of one request to an object store with its retries, in seconds."""


def open_location(location: str, store_seconds: float = STORE_SECONDS) -> Location:
    """Open a folder, or the store that a URL such as `s3://bucket/pictures` names."""
    return StoreLocation(location, store_seconds) if is_remote(location) else FolderLocation(Path(location))


def is_remote(location: str) -> bool:
    """Whether reading means asking a server."""
    return "://" in location


class FolderLocation:
    """A folder of a filesystem."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def names(self) -> Iterator[str]:
        for parent, _, files in os.walk(self._folder, followlinks=True):
            for file in files:
                yield (Path(parent) / file).relative_to(self._folder).as_posix()

    def size(self, name: str) -> int | None:
        path = self._folder / name
        return path.stat().st_size if path.is_file() else None

    def read(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        with (self._folder / name).open("rb", buffering=0) as file:
            return os.pread(file.fileno(), stop - start, start)

    def read_parts(self, parts: Sequence[FileRange]) -> list[bytes]:
        return [self.read_range(*part) for part in parts]

    def write(self, name: str, data: bytes) -> None:
        staged = self._folder / f"{name}.tmp"
        staged.write_bytes(data)
        staged.replace(self._folder / name)


class StoreLocation:
    """A prefix in an object store; only the requested bytes are read."""

    def __init__(self, url: str, store_seconds: float) -> None:
        from trainyard_train.checkpointing.object_store import (
            ObjectStore,  # slow to import
        )

        self._store = ObjectStore(url, timeout_seconds=store_seconds)

    def names(self) -> Iterator[str]:
        yield from self._store.names()

    def size(self, name: str) -> int | None:
        return self._store.size(name)

    def read(self, name: str) -> bytes:
        return self._store.read(name)

    def read_range(self, name: str, start: int, stop: int) -> bytes:
        return bytes(self._store.read_range(name, start, stop))

    def read_parts(self, parts: Sequence[FileRange]) -> list[bytes]:
        return self._store.read_parts(parts)

    def write(self, name: str, data: bytes) -> None:
        self._store.put(name, data)
