"""Packs a folder of code into a reproducible archive: the same files give the same digest. Secrets, links
that leave the folder, and folders that are too large are refused.

The digest is that of the uncompressed archive, so it is the same whatever compresses it. An entry has a name,
a content and whether it is executable; owners, times and the other bits of a mode are this host's alone.
"""

import gzip
import hashlib
import os
import re
import shutil
import stat
import tarfile
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch, translate
from pathlib import Path, PurePosixPath
from typing import IO

from infra.common.names import JOB_VOLUME_GIB
from infra.errors import InputError, Problem

MAX_BYTES = 256 << 20
"""Maximum size of all files: code is small, and each pod of a job unpacks it. Data belong into datasets and
volumes."""
MAX_UNPACKED = JOB_VOLUME_GIB << 30
"""Maximum size of the pack and its files in a pod's memory, where each file takes whole pages."""
_PAGE = 4096
NUM_LARGEST = 5
"""Number of the largest files that are named if a folder is too large."""
_IN_MEMORY = 32 << 20
_SECRETS = (
    ".env",
    ".env.*",
    ".git-credentials",
    ".netrc",
    ".pypirc",
    "*.jks",
    "*.key",
    "*.kubeconfig",
    "*.p12",
    "*.pem",
    "*.pfx",
    "id_dsa",
    "id_ecdsa",
    "id_ed25519",
    "id_rsa",
    "kubeconfig",
)
_SECRET_NAME = re.compile("|".join(map(translate, _SECRETS)))
_LFS = b"version https://git-lfs.github.com/spec/"
"""Beginning of a file of Git LFS that was not fetched."""
_HARMLESS = (".env.dist", ".env.example", ".env.sample", ".env.template")
_PRIVATE_KEY = re.compile(rb"^-----BEGIN [A-Z ]*PRIVATE KEY( BLOCK)?-----\r?$", re.MULTILINE)


@dataclass(frozen=True)
class Pack:
    """A packed folder of code."""

    digest: str
    """SHA-256 of the archive before compression, as `sha256:…`."""
    num_files: int
    num_bytes: int
    """Size of the files in bytes."""
    archive: IO[bytes]
    """The uncompressed archive, opened at its start."""
    absent: tuple[str, ...] = ()
    """Names that are no files here: submodules that are not checked out, and what was deleted."""
    pointers: tuple[str, ...] = ()
    """Files of Git LFS whose content was not fetched."""

    def compressed(self) -> IO[bytes]:
        """Return the archive as it is sent; the same bytes on every host."""
        out: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 -- it is returned
        self.archive.seek(0)
        with gzip.GzipFile("", "wb", compresslevel=5, fileobj=out, mtime=0) as zipped:
            shutil.copyfileobj(self.archive, zipped, 1 << 20)
        out.seek(0)
        return out


@dataclass(frozen=True)
class Stored:
    """The form of a file that git stores."""

    mode: int | None
    """Mode; None: the disk's."""
    has_lf: bool
    """Whether its lines end in LF, though not on this disk."""


@dataclass(frozen=True)
class _File:
    name: str
    """Path relative to the folder; bytes that are not UTF-8 are decoded as `os.fsdecode` does it."""
    mode: int
    content: bytes
    """Content of the file, or the target of a link."""


_OF_DISK = Stored(None, has_lf=False)


def pack(
    folder: Path,
    names: Iterable[str],
    listed: Sequence[str] = (),
    stored: Mapping[str, Stored] = {},
    *,
    is_code: bool = True,
) -> Pack:
    """Pack the files of a folder. A file that does not exist, or is deleted meanwhile, is omitted.

    Args:
        folder: folder that the names are relative to.
        names: names of files and links, in any order.
        listed: patterns of what the user has named, which may look like a secret.
        stored: files that are packed in git's form instead of the disk's.
        is_code: whether a user has written the files, so that sizes, secrets and links are checked.

    Raises:
        InputError: files that look like secrets, links to outside of the folder, or more than
            `MAX_BYTES`; all of it.
    """
    absent, pointers = set(names), list[str]()
    found_files = _stats(folder, sorted(absent, key=os.fsencode))
    if is_code:
        _check_size(folder, found_files)
    archive: IO[bytes] = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 -- it is returned
    problems: list[Problem] = []
    found = hashlib.sha256()
    num_files = num_bytes = 0
    for file in _files(folder, found_files, stored):
        absent.discard(file.name)
        if file.content.startswith(_LFS):
            pointers.append(file.name)
        problems += _problems(file, listed) if is_code else ()
        entry = _entry(file)
        archive.write(entry)
        found.update(entry)
        num_files, num_bytes = num_files + 1, num_bytes + len(file.content)
    if problems:
        raise InputError(problems)
    end = bytes(2 * tarfile.BLOCKSIZE + -(archive.tell() + 2 * tarfile.BLOCKSIZE) % tarfile.RECORDSIZE)
    archive.write(end)
    found.update(end)
    archive.seek(0)
    digest = f"sha256:{found.hexdigest()}"
    return Pack(digest, num_files, num_bytes, archive, tuple(sorted(absent)), tuple(pointers))


def _stats(folder: Path, names: Iterable[str]) -> dict[str, os.stat_result]:
    """Return the status of each file that exists, by its name.

    Paths are texts here: objects of pathlib take a third of the time for a folder of small files.
    """
    found: dict[str, os.stat_result] = {}
    for name in names:
        with suppress(FileNotFoundError, NotADirectoryError):
            found[name] = os.lstat(os.path.join(folder, name))  # noqa: PTH118
    return found


def _files(
    folder: Path, stats: Mapping[str, os.stat_result], stored: Mapping[str, Stored]
) -> Iterator[_File]:
    for name, known in stats.items():
        with suppress(FileNotFoundError, NotADirectoryError):
            path = os.path.join(folder, name)  # noqa: PTH118
            if stat.S_ISLNK(known.st_mode):
                yield _File(name, known.st_mode, os.fsencode(os.readlink(path)))  # noqa: PTH115
            elif stat.S_ISREG(known.st_mode):
                form, content = stored.get(name, _OF_DISK), _content(path, known.st_size)
                content = content.replace(b"\r\n", b"\n") if form.has_lf else content
                yield _File(name, form.mode or known.st_mode, content)


def _content(path: str, size: int) -> bytes:
    """Read a file; `size` is a guess. A file object takes twice the time of a small file's read."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        content = os.read(descriptor, size + 1)
        if len(content) == size:
            return content
        return content + b"".join(iter(lambda: os.read(descriptor, size + 1), b""))
    finally:
        os.close(descriptor)


def _entry(file: _File) -> bytes:
    """Return what `TarFile.addfile` writes of a file, which copies its content once more."""
    entry = tarfile.TarInfo(file.name)
    if stat.S_ISLNK(file.mode):
        entry.type, entry.mode, entry.linkname = tarfile.SYMTYPE, 0o777, os.fsdecode(file.content)
        return entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    entry.mode, entry.size = 0o755 if file.mode & stat.S_IXUSR else 0o644, len(file.content)
    header = entry.tobuf(tarfile.GNU_FORMAT, "utf-8", "surrogateescape")
    return header + file.content + bytes(-entry.size % tarfile.BLOCKSIZE)


def _check_size(folder: Path, stats: Mapping[str, os.stat_result]) -> None:
    sizes = {name: known.st_size for name, known in stats.items()}
    total = sum(sizes.values())
    unpacked = sum(
        _rounded(size, _PAGE) + tarfile.BLOCKSIZE + _rounded(size, tarfile.BLOCKSIZE)
        for size in sizes.values()
    )
    if total <= MAX_BYTES and unpacked <= MAX_UNPACKED:
        return
    if total <= MAX_BYTES:
        fix = "leave out what the job does not need (.trainyardignore), or put files on the team's volume"
        got = f"{counted(len(sizes), 'file')}, which take {size_of(unpacked)} in the memory of each pod"
        raise InputError([Problem(str(folder), got, f"{size_of(MAX_UNPACKED)} including the pack", fix)])
    largest = sorted(sizes, key=lambda name: sizes[name], reverse=True)[:NUM_LARGEST]
    shown = ", ".join(f"{printable(name)} ({size_of(sizes[name])})" for name in largest)
    fix = (
        "leave them out (.trainyardignore, git rm --cached); data belong on the team's volume or in datasets"
    )
    got = f"{counted(len(sizes), 'file')} of {size_of(total)}; the largest: {shown}"
    raise InputError([Problem(str(folder), got, f"{size_of(MAX_BYTES)} in total", fix)])


def _rounded(size: int, unit: int) -> int:
    return -(-size // unit) * unit


def _problems(file: _File, listed: Sequence[str]) -> Iterator[Problem]:
    if stat.S_ISLNK(file.mode):
        target = os.fsdecode(file.content)
        if _escapes(file.name, target):
            fix = "replace it with a copy, or leave it out (.trainyardignore)"
            yield Problem(
                printable(file.name), f"a link to {printable(target)}", "links that stay in the folder", fix
            )
    elif _looks_secret(file) and not matches(file.name, listed):
        fix = "leave it out (.trainyardignore) and give its values by `secrets`; or list it under `files`"
        yield Problem(
            printable(file.name), "a file that looks like a secret", "code that the whole team may read", fix
        )


def _escapes(name: str, target: str) -> bool:
    if target.startswith("/"):
        return True
    depth = 0
    for part in (*PurePosixPath(name).parent.parts, *target.split("/")):
        depth += {"..": -1, ".": 0, "": 0}.get(part, 1)
        if depth < 0:
            return True
    return False


def _looks_secret(file: _File) -> bool:
    base = file.name.rpartition("/")[2]
    if base in _HARMLESS:
        return False
    # Certificates are public, and have the same ending as keys.
    named = _SECRET_NAME.match(base) is not None
    public = base.endswith(".pem") and b"PRIVATE" not in file.content
    return (named and not public) or (
        b" PRIVATE " in file.content and _PRIVATE_KEY.search(file.content) is not None
    )


def matches(name: str, patterns: Iterable[str]) -> bool:
    """Whether a file, or a folder that it is in, is what one of the patterns names."""
    ways = [name, *map(str, PurePosixPath(name).parents)]
    return any(fnmatch(way, pattern.rstrip("/")) for pattern in patterns for way in ways)


def printable(name: str) -> str:
    """Return a file's name as a terminal can show it."""
    return name.encode(errors="backslashreplace").decode()


def size_of(number: int) -> str:
    """Write a number of bytes in KiB or MiB."""
    return f"{number / (1 << 20):.1f} MiB" if number >= 100 << 10 else f"{-(-number // 1024)} KiB"


def counted(number: int, noun: str) -> str:
    """Write a number of things: `1 file`, `2 files`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
