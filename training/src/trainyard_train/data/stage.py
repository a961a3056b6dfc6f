"""Stages datasets by commands: `fetch` copies one to the shared filesystem once and checks its digest,
`verify` reads it again, and `describe` prints size and digests of a source.

`python -m trainyard_train.data.stage fetch SOURCE OUT --digest D` copies one. A source is a URL (`s3://`,
`gs://`, `az://`, `https://`) or a path. With `/` at its end it is a folder with all that is below it, else
one file. What arrives is checked against a digest:

- `sha256:…` of the contents: the sha256 of a list of `<sha256>  <name>` lines, in the order of names, as
  `sha256sum` writes it. It is the same for every source of the data.
- `etag:…` of the store's own list, `<size> <etag>  <name>`: known without reading a byte, for data
  that are too large to be read twice. It is valid for one bucket only, and only sizes are checked on arrival.

`python -m trainyard_train.data.stage describe SOURCE` prints both, for a stack file. The data end in
`OUT/<digest>`, which appears whole or not at all, with its list in `.staged.json`; a fetch that was stopped
continues where it was.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import os
import shutil
import sys
import time
import urllib.parse
import urllib.request
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Final

from trainyard_train.observability.rank_log import log_line

MARKER: Final = ".staged.json"
_CHUNK: Final = 32 << 20
"""Bytes that a thread holds at a time."""
_TIMEOUT_SECONDS: Final = 120
_GIB: Final = 1 << 30
_LOG_EVERY_SECONDS: Final = 30.0


class StageError(ValueError):
    """The data differ from the request; each problem is a line."""


@dataclass(frozen=True)
class Listed:
    """A file as its source lists it."""

    size: int
    tag: str = ""
    """ETag of the file in the store; empty where it has none."""


class _Store:
    """A prefix, or one object, of an object store."""

    def __init__(self, url: str, *, single: bool) -> None:
        from trainyard_train.checkpointing.object_store import ObjectStore  # slow to import

        above, _, name = url.rstrip("/").rpartition("/")
        self._store, self._name = (ObjectStore(above), name) if single else (ObjectStore(url), "")
        self._sizes: dict[str, int] = {}

    def listing(self) -> dict[str, Listed]:
        """Name → file, names seen from the source; raises OSError where it cannot be reached."""
        found = self._store.listing(self._name)
        self._sizes = {name: size for name, (size, _) in found.items()}
        return {name: Listed(size, tag) for name, (size, tag) in found.items()}

    def chunks(self, name: str) -> Iterator[bytes]:
        size = self._sizes[name]
        for start in range(0, size, _CHUNK):
            yield bytes(self._store.read_range(name, start, min(start + _CHUNK, size)))


class _Folder:
    """A folder, or one file."""

    def __init__(self, path: Path) -> None:
        self._path, self._above = path, path if path.is_dir() else path.parent

    def listing(self) -> dict[str, Listed]:
        files = self._path.rglob("*") if self._path.is_dir() else [self._path]
        found = {each.relative_to(self._above).as_posix(): each.stat() for each in files if each.is_file()}
        return {name: Listed(each.st_size) for name, each in found.items()}

    def chunks(self, name: str) -> Iterator[bytes]:
        with (self._above / name).open("rb") as file:
            while part := file.read(_CHUNK):
                yield part


class _Web:
    """One file of a web server."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._name = PurePosixPath(urllib.parse.unquote(urllib.parse.urlsplit(url).path)).name

    def listing(self) -> dict[str, Listed]:
        with self._open("HEAD") as answer:
            return {
                self._name: Listed(int(answer.headers["Content-Length"] or 0), answer.headers["ETag"] or "")
            }

    def chunks(self, name: str) -> Iterator[bytes]:
        with self._open("GET") as answer:
            while part := answer.read(_CHUNK):
                yield part

    def _open(self, method: str) -> Any:  # noqa: ANN401 -- the library has no type for it
        request = urllib.request.Request(self._url, method=method)  # noqa: S310 -- `open_source` lets http in only
        return urllib.request.urlopen(request, timeout=_TIMEOUT_SECONDS)  # noqa: S310


DatasetSource = _Store | _Folder | _Web


def open_source(source: str) -> DatasetSource:
    """Return the source at a URL or path; with `/` at its end, a folder.

    Raises:
        StageError: a web server's folder, which has no list.
    """
    single = not source.endswith("/")
    if source.startswith(("https://", "http://")):
        if not single:
            raise StageError(f"{source}: a web server has no list of files; allowed: the URL of one file")
        return _Web(source)
    if "://" in source:
        return _Store(source, single=single)
    if not Path(source).exists():
        raise FileNotFoundError(f"{source}: no such {'file' if single else 'folder'}")
    return _Folder(Path(source))


def digest_of_contents(hashes: Mapping[str, str]) -> str:
    """Digest of files by their names and sha256."""
    lines = (f"{hashes[name]}  {name}\n".encode() for name in sorted(hashes))
    return f"sha256:{_sha256(lines)}"


def digest_of_list(listed: Mapping[str, Listed]) -> str:
    """Digest of a store's list; empty where it has no tags."""
    if not listed or not all(each.tag for each in listed.values()):
        return ""
    lines = (f"{listed[name].size} {listed[name].tag}  {name}\n".encode() for name in sorted(listed))
    return f"etag:{_sha256(lines)}"


def _sha256(parts: Iterable[bytes]) -> str:
    hashed = hashlib.sha256()
    for part in parts:
        hashed.update(part)
    return hashed.hexdigest()


def folder_name(digest: str) -> str:
    """Name of the folder that data of this digest are in: `sha256-…`."""
    return digest.replace(":", "-")


def fetch(source: str, out: Path, digest: str, max_bytes: int | None = None, workers: int = 8) -> Path:
    """Copy a dataset to `out/<digest>`, verified, unless it exists; return that folder.

    Args:
        source: URL or path.
        out: folder of the dataset, all versions of it.
        digest: `sha256:…` or `etag:…`, as `describe` prints it.
        max_bytes: maximum size; nothing is copied if the source lists more.
        workers: files that are copied at a time.

    Raises:
        StageError: the data do not match the digest or the size.
        OSError: the source cannot be read, or `out` not be written.
    """
    final = out / folder_name(digest)
    if (final / MARKER).exists():
        verify(final, contents=False)
        return final
    opened = open_source(source)
    listed = _checked(source, opened.listing(), digest, max_bytes)
    staged = out / f".{final.name}"
    staged.mkdir(parents=True, exist_ok=True)
    for path in staged.rglob("*"):
        if path.is_file() and path.relative_to(staged).as_posix() not in listed:
            path.unlink()  # of an earlier try, and no longer in the source
    progress = _LogProgress(sum(each.size for each in listed.values()))
    with ThreadPoolExecutor(workers) as pool:
        jobs = {
            name: pool.submit(_copy, opened, name, each, staged, progress) for name, each in listed.items()
        }
        try:
            hashes = {name: job.result() for name, job in jobs.items()}
        except BaseException:
            pool.shutdown(cancel_futures=True)  # files that arrived remain for the next try
            raise
    found = digest_of_contents(hashes)
    if digest.startswith("sha256:") and found != digest:
        shutil.rmtree(staged)  # else the next fetch would continue these wrong files
        raise StageError(
            f"{source}: got {found}; allowed: {digest}; if the source has a new version, set the digest that"
            " `describe` prints"
        )
    files = {name: {"size": listed[name].size, "sha256": hashes[name]} for name in sorted(listed)}
    marker = {"source": source, "digest": digest, "contents": found, "files": files}
    with (staged / MARKER).open("w") as file:
        file.write(json.dumps(marker, indent=1) + "\n")
        file.flush()
        os.fsync(file.fileno())  # a marker without its text would never be staged again
    staged.rename(final)
    return final


def _checked(source: str, listed: dict[str, Listed], digest: str, max_bytes: int | None) -> dict[str, Listed]:
    """Return the list if it matches the digest and the size."""
    if not listed:
        raise StageError(f"{source}: has no files; correct the source (a folder ends with '/')")
    for name in listed:
        path = PurePosixPath(name)
        if path.is_absolute() or ".." in path.parts or name == MARKER:
            raise StageError(f"{source}: got a file named {name!r}; allowed: names below the source")
    total = sum(each.size for each in listed.values())
    if max_bytes is not None and total > max_bytes:
        got, allowed = f"{total / _GIB:.2f} GiB", f"{max_bytes / _GIB:.2f} GiB or less"
        raise StageError(f"{source}: got {got}; allowed: {allowed}; raise size_gib, or correct the source")
    found = digest_of_list(listed)
    if digest.startswith("etag:") and found != digest:
        got = found or "a source without ETags"
        raise StageError(
            f"{source}: got {got}; allowed: {digest}; if the source has changed, set the digest that"
            " `describe` prints"
        )
    return listed


def _copy(source: DatasetSource, name: str, listed: Listed, staged: Path, progress: _LogProgress) -> str:
    """Copy a file unless it exists in full; return its sha256."""
    target = staged / name
    if target.exists() and target.stat().st_size == listed.size:
        hashed = _hash(target)
        progress.add(listed.size)
        return hashed
    target.parent.mkdir(parents=True, exist_ok=True)
    half = target.with_name(f"{target.name}.{os.getpid()}.half")
    hashed_so_far, size = hashlib.sha256(), 0
    with half.open("wb") as file:
        for part in source.chunks(name):
            file.write(part)
            hashed_so_far.update(part)
            size += len(part)
            progress.add(len(part))
        file.flush()
        os.fsync(file.fileno())
    if size != listed.size:
        half.unlink()
        raise StageError(f"{name}: got {size} bytes; its source lists {listed.size}; run it again")
    half.replace(target)
    return hashed_so_far.hexdigest()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return _sha256(iter(lambda: file.read(1 << 20), b""))


def verify(folder: Path, *, contents: bool = True) -> int:
    """Compare a staged dataset with `.staged.json`: sizes, and the sha256 of each; return how many files.

    Raises:
        StageError: with every file that is missing or different; or it was never staged.
    """
    marker = folder / MARKER
    if not marker.exists():
        raise StageError(f"{folder} has no {MARKER}: its staging has not completed")
    files: Mapping[str, Mapping[str, object]] = json.loads(marker.read_text())["files"]
    problems = []
    for name, entry in files.items():
        path = folder / name
        size = path.stat().st_size if path.is_file() else None
        if size != entry["size"]:
            problems.append(
                f"{path}: {'missing' if size is None else f'{size} bytes'}; allowed: {entry['size']} bytes"
            )
        elif contents and (found := _hash(path)) != entry["sha256"]:
            problems.append(f"{path}: sha256 {found}; allowed: {entry['sha256']}")
    if problems:
        raise StageError("\n".join([*problems, f"remove {folder}, and stage it again"]))
    return len(files)


def describe(source: str) -> dict[str, object]:
    """Size and digests of a source, as a stack file names them. All of it is read once.

    Raises:
        StageError: there is nothing.
        OSError: the source cannot be read.
    """
    opened = open_source(source)
    listed = _checked(source, opened.listing(), "", None)
    hashes = {name: _sha256(opened.chunks(name)) for name in listed}
    total = sum(each.size for each in listed.values())
    return {
        "files": len(listed),
        "size_gib": -(-total // _GIB),
        "digest": digest_of_contents(hashes),
        "etag": digest_of_list(listed),
    }


class _LogProgress:
    """Log the progress of a copy now and then, for the pod's log."""

    def __init__(self, total: int) -> None:
        self._total, self._done, self._reported_at = total, 0, time.monotonic()

    def add(self, size: int) -> None:
        """Count; threads may race for the line, which is no harm."""
        self._done += size
        if time.monotonic() - self._reported_at > _LOG_EVERY_SECONDS:
            self._reported_at = time.monotonic()
            sys.stdout.write(f"{self._done / _GIB:.1f} of {self._total / _GIB:.1f} GiB\n")
            sys.stdout.flush()


def main(arguments: Sequence[str] | None = None) -> int:
    """Stage, verify or describe; returns 0, 1 if something cannot be read, 2 if it is not as it should be."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard_train.data.stage",
        description="Copy datasets to a shared folder, and verify them.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    one = commands.add_parser("fetch", help="copy a dataset to OUT/<digest>")
    one.add_argument("source")
    one.add_argument("out", type=Path)
    one.add_argument("--digest", required=True, help="sha256:… or etag:…, as `describe` prints it")
    one.add_argument("--max-gib", type=int, help="refuse a source that lists more")
    another = commands.add_parser("verify", help="compare every byte of a staged dataset with its list")
    another.add_argument("folder", type=Path)
    third = commands.add_parser("describe", help="print size and digests of a source, for a stack file")
    third.add_argument("source")
    options = parser.parse_args(arguments)
    try:
        output = _run(options)
    except StageError as error:
        log_line(str(error))
        return 2
    except OSError as error:
        log_line(str(error))
        return 1
    sys.stdout.write(f"{output}\n")
    return 0


def _run(options: argparse.Namespace) -> str:
    if options.command == "describe":
        return json.dumps(describe(options.source), indent=1)
    if options.command == "verify":
        return f"{options.folder}: {verify(options.folder)} files match {MARKER}"
    limit = None if options.max_gib is None else options.max_gib * _GIB
    return f"staged: {fetch(options.source, options.out, options.digest, limit)}"


if __name__ == "__main__":
    sys.exit(main())
