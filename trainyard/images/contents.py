"""Reads an image's file names, links, `ld.so` cache and environment from its layers, in a registry or
archive.

Layers are streamed from the top down, and reading ends once `enough` is known. A whiteout (`.wh.` file)
removes files from the layers below it only (OCI Image Format Specification 1.1, "Image Layer Filesystem
Changeset").
"""

import gzip
import io
import json
import tarfile
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, Protocol, cast

from catalog.image_lint import LOADER_CACHE, ImageContents

_WHITEOUT, _OPAQUE = ".wh.", ".wh..wh..opq"
_GZIP, _ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
_MOST_CACHE_BYTES = 8 << 20
"""Maximum size of a loader's cache that is read; that of a large system has some 100 KB."""


class UnreadableImageError(Exception):
    """An image whose layers cannot be read; the text is the reason."""


class LayerStore(Protocol):
    """Store of an image's parts, by their digests."""

    def manifest(self, architecture: str) -> Mapping[str, Any]:
        """Return the manifest of the image for a processor; for any, where the name is empty."""

    def json(self, digest: str) -> Mapping[str, Any]:
        """Return a small part that is JSON."""

    def open(self, digest: str) -> AbstractContextManager[io.BufferedReader]:
        """Open a layer to be read from its beginning to its end."""


@dataclass(frozen=True)
class LayerRead:
    """Progress of reading an image."""

    layer: int
    """Number of the layer that is being read, counted from 1 at the top."""
    layers: int
    megabytes: int
    """Compressed size of this layer."""


def read_image(
    store: LayerStore,
    architecture: str = "",
    *,
    enough: Callable[[ImageContents], bool] = lambda _: False,
    on_layer: Callable[[LayerRead], None] = lambda _: None,
) -> ImageContents:
    """Read an image's files from the top layer down, until `enough`, which is called after each layer.

    Raises:
        UnreadableImageError: the manifest is of no image, or a layer's compression is unknown.
    """
    manifest = store.manifest(architecture)
    if "layers" not in manifest or "config" not in manifest:
        raise UnreadableImageError("not an image: its manifest has no layers")
    environment = _environment(store.json(manifest["config"]["digest"]))
    seen = _Seen()
    layers = list(reversed(manifest["layers"]))
    for number, layer in enumerate(layers, 1):
        on_layer(LayerRead(number, len(layers), int(layer.get("size", 0)) >> 20))
        with store.open(layer["digest"]) as stream:
            seen.add(_members(stream))
        contents = seen.contents(environment)
        if enough(contents):
            return contents
    return seen.contents(environment)


def _environment(config: Mapping[str, Any]) -> dict[str, str]:
    pairs = (config.get("config") or {}).get("Env") or ()
    return dict(pair.split("=", 1) for pair in pairs if "=" in pair)


class _Seen:
    """The files of the layers so far; each that is added lies below those before it."""

    def __init__(self) -> None:
        self._files: set[str] = set()
        self._links: dict[str, str] = {}
        self._hidden: set[str] = set()
        """Paths that an upper layer has deleted, or replaced by something other than a folder."""
        self._emptied: set[str] = set()
        """Folders whose content in lower layers an upper layer hides."""
        self._folders: set[str] = set()
        self._cache: bytes | None = None

    def contents(self, environment: Mapping[str, str]) -> ImageContents:
        cached = frozenset(_cached_paths(self._cache or b""))
        return ImageContents(frozenset(self._files), dict(self._links), cached, environment)

    def add(self, members: Iterator[tuple[tarfile.TarInfo, bytes]]) -> None:
        hidden, emptied, folders = set[str](), set[str](), set[str]()
        for member, data in members:
            path = _path(member)
            folder, _, name = path.rpartition("/")
            if name == _OPAQUE:
                emptied.add(folder or ".")
            elif name.startswith(_WHITEOUT):
                hidden.add(f"{folder}/{name.removeprefix(_WHITEOUT)}".lstrip("/"))
            elif member.isdir():
                folders.add(path)
            elif self._is_visible(path):
                hidden.add(path)
                self._take(path, member, data)
        # A layer's whiteouts apply to the layers below it only.
        self._hidden |= hidden
        self._emptied |= emptied
        self._folders |= folders

    def _is_visible(self, path: str) -> bool:
        above = [str(each) for each in PurePosixPath(path).parents]
        removed = path in self._folders or any(each in self._hidden for each in (path, *above))
        return not removed and not any(each in self._emptied for each in above)

    def _take(self, path: str, member: tarfile.TarInfo, data: bytes) -> None:
        if member.issym():
            self._links[path] = member.linkname
        else:
            self._files.add(path)
        if path == LOADER_CACHE:
            self._cache = data


def _path(member: tarfile.TarInfo) -> str:
    return str(PurePosixPath("/", member.name).relative_to("/"))


def _members(stream: io.BufferedReader) -> Iterator[tuple[tarfile.TarInfo, bytes]]:
    """Yield each entry of a layer; with its data, where it is the loader's cache."""
    try:
        with tarfile.open(fileobj=_unpacked(stream), mode="r|") as tar:
            for member in tar:
                yield member, _data(tar, member)
                # tarfile retains every member; a layer with PyTorch has 20,000.
                cast(Any, tar).members = []
    except (tarfile.TarError, zlib.error, EOFError, OSError) as error:
        raise UnreadableImageError(f"a layer that is not a tar archive ({error})") from error


def _data(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    if _path(member) != LOADER_CACHE or not member.isfile():
        return b""
    stream = tar.extractfile(member)
    return stream.read(_MOST_CACHE_BYTES) if stream else b""


def _unpacked(stream: io.BufferedReader) -> io.BufferedIOBase:
    """Detect a layer's compression by its first bytes, as container runtimes do."""
    head = stream.peek(4)
    if head.startswith(_GZIP):
        return gzip.GzipFile(fileobj=stream)
    if head.startswith(_ZSTD):
        raise UnreadableImageError("a layer compressed with zstd, which is not supported: push it with gzip")
    return stream


def _cached_paths(cache: bytes) -> Iterator[str]:
    """Yield the paths that a loader's cache names; it ends with a table of texts (glibc, dl-cache.h)."""
    for text in cache.split(b"\0"):
        if text.startswith(b"/") and b".so" in text:
            yield text.decode(errors="replace").lstrip("/")


class ImageArchive:
    """An OCI image layout in a tar archive, as `buildah push oci-archive:` and BuildKit write it."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def manifest(self, architecture: str) -> Mapping[str, Any]:
        index = self._json("index.json")
        while "manifests" in index:
            index = self.json(chosen(index["manifests"], architecture)["digest"])
        return index

    def json(self, digest: str) -> Mapping[str, Any]:
        return self._json(_blob(digest))

    def _json(self, name: str) -> Mapping[str, Any]:
        with self._member(name) as stream:
            found: Mapping[str, Any] = json.load(stream)
        return found

    @contextmanager
    def open(self, digest: str) -> Iterator[io.BufferedReader]:
        with self._member(_blob(digest)) as stream:
            yield stream

    @contextmanager
    def _member(self, name: str) -> Iterator[io.BufferedReader]:
        try:
            with tarfile.open(self._file) as tar:
                stream = tar.extractfile(name)
                if stream is None:
                    raise KeyError(name)
                yield cast(io.BufferedReader, stream)
        except (tarfile.ReadError, KeyError, OSError) as error:
            message = f"not an OCI image layout in a tar archive ({type(error).__name__}: {error})"
            raise UnreadableImageError(message) from error


def _blob(digest: str) -> str:
    return f"blobs/{digest.replace(':', '/')}"


def chosen(manifests: Sequence[Mapping[str, Any]], architecture: str) -> Mapping[str, Any]:
    """Return an index's image for a processor; attestations, which are for none, are no images."""
    images = [each for each in manifests if _architecture(each) != "unknown"]
    fitting = [each for each in images if not architecture or _architecture(each) in ("", architecture)]
    if not fitting:
        raise UnreadableImageError(f"no image for {architecture or 'any processor'}")
    return fitting[0]


def _architecture(manifest: Mapping[str, Any]) -> str:
    return str((manifest.get("platform") or {}).get("architecture", ""))
