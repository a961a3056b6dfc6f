"""Datasets of labelled pictures from ImageNet's folders or WebDataset's shards: finds, decodes and crops
them; also packs and indexes shards.

| layout | files |
|---|---|
| folders | `<class>/….jpg`: a folder for each class |
| shards | `….tar` of `<key>.jpg` and `<key>.cls` (the class as a number), with `pictures.npz`, the index |

`python -m trainyard_train.data.pictures pack OUT SOURCE` makes shards of folders, and `index LOCATION` makes
an index for shards that others have made. The index has each picture's offset in its shard, so that one range
request reads any sample by its number. So any number of ranks can resume in the middle of an epoch, as with
other data. How a picture is cropped and mirrored follows from its position in the order of samples alone.
"""

from __future__ import annotations

import argparse
import io
import sys
import tarfile
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import torch

from trainyard_train.config_base import extra
from trainyard_train.data.locations import (
    STORE_SECONDS,
    FileRange,
    FolderLocation,
    Location,
    is_remote,
    open_location,
)
from trainyard_train.data.samples import Dataset, Samples

if TYPE_CHECKING:
    from trainyard_train.data.config import DataConfig

INDEX: Final = "pictures.npz"
_KINDS: Final = frozenset({".jpg", ".jpeg", ".png", ".webp"})
_MEAN: Final = np.array([0.485, 0.456, 0.406], dtype=np.float32).reshape(3, 1, 1)
_DEVIATION: Final = np.array([0.229, 0.224, 0.225], dtype=np.float32).reshape(3, 1, 1)
"""Standard deviation of ImageNet's pictures by channel, as models of pictures usually use it."""
_SCALE: Final = 1 / (255 * _DEVIATION)
_SHIFT: Final = _MEAN / _DEVIATION
_SEEN: Final = 0.875
"""Part of the shorter side that evaluation crops to: 224 of 256."""
_READ_AT_ONCE: Final = 1 << 20
Box = tuple[float, float, float, float]
"""Left, top, right, bottom, in pixels."""
Image = np.ndarray[Any, np.dtype[np.uint8]]
Normalised = np.ndarray[Any, np.dtype[np.float32]]


class PictureError(ValueError):
    """Invalid pictures; each problem is a line."""


@dataclass(frozen=True)
class Table:
    """Table of all pictures: their files, positions, sizes and classes."""

    files: list[str]
    classes: list[str]
    """Names of the classes, in order of their number."""
    records: np.ndarray[Any, np.dtype[np.int64]]
    """A row for each picture: number of its file, its first byte there, its size in bytes, its class."""
    sizes: list[int] = field(default_factory=list)
    """Sizes of the files in bytes, if they are shards."""

    def encode(self) -> bytes:
        """Encode the table as the content of the index file."""
        out = io.BytesIO()
        np.savez(out, files=self.files, classes=self.classes, records=self.records, sizes=self.sizes)
        return out.getvalue()

    @staticmethod
    def decode(data: bytes) -> Table:
        """Read what `encode` wrote.

        Raises:
            ValueError: the data are no index, or damaged.
        """
        try:
            with np.load(io.BytesIO(data)) as arrays:
                names, classes = arrays["files"].tolist(), arrays["classes"].tolist()
                table = Table(names, classes, arrays["records"], arrays["sizes"].tolist())
        except Exception as error:  # numpy and zipfile raise any of a dozen kinds
            raise ValueError(f"it is damaged, or not an index: {error or type(error).__name__}") from None
        table.check()
        return table

    def check(self) -> None:
        """Check that every entry names an existing file and class, and that all files have sizes or none has.

        Raises:
            ValueError: an entry is wrong.
        """
        records = self.records
        if records.ndim != 2 or records.shape[1] != 4 or records.dtype.kind not in "iu" or not len(records):
            raise ValueError(
                f"records: got {records.dtype} of shape {records.shape}; allowed: integers, (n, 4)"
            )
        most = records.max(axis=0)
        counts = (len(self.files), len(self.classes))
        if records.min() < 0 or most[0] >= counts[0] or most[3] >= counts[1]:
            raise ValueError(
                f"records: got file number {most[0]} and class number {most[3]}; allowed: 0 to"
                f" {counts[0] - 1} and 0 to {counts[1] - 1}"
            )
        if self.sizes and len(self.sizes) != counts[0]:
            raise ValueError(f"sizes: got {len(self.sizes)}; allowed: {counts[0]}, one for each file")


@dataclass(frozen=True)
class Pictures:
    """Pictures as samples of shape (3, side, side), normalised."""

    location: str
    table: Table
    side: int
    seed: int
    workers: int = 1
    """Number of threads that decode."""
    chosen: np.ndarray[Any, np.dtype[np.int64]] | None = None
    """The rows of the table that are samples; None: all."""
    store_seconds: float = STORE_SECONDS

    is_remote: Final = True  # reading and decoding are slow, so batches are read ahead

    def __len__(self) -> int:
        return len(self.table.records if self.chosen is None else self.chosen)

    def take(self, indices: torch.Tensor, at: int | None = None) -> Samples:
        """Return the samples at these positions; augmented if `at`, their position in the order, is given.

        Raises:
            PictureError: a picture cannot be decoded.
            OSError: a picture cannot be read.
        """
        rows = indices.numpy() if self.chosen is None else self.chosen[indices.numpy()]
        parts = [self._part(row) for row in rows]
        at_once = is_remote(self.location) and bool(self.table.sizes)
        data = self._files.read_parts(parts) if at_once else [None] * len(parts)
        chances = [None if at is None else at + number for number in range(len(rows))]
        inputs = np.empty((len(rows), 3, self.side, self.side), dtype=np.float32)
        list(self._pool.map(self._show, inputs, parts, data, chances))
        return Samples(torch.from_numpy(inputs), torch.from_numpy(self.table.records[rows, 3]))

    def close(self) -> None:
        """End the threads that decode."""
        if pool := self.__dict__.pop("_pool", None):
            pool.shutdown(wait=False, cancel_futures=True)

    def _part(self, row: int) -> FileRange:
        """Position of a picture in its file; all of the file if that is no shard."""
        file, start, size, _ = map(int, self.table.records[row])
        return self.table.files[file], start, start + size

    def _show(self, target: Normalised, part: FileRange, data: bytes | None, at: int | None) -> None:
        """Decode one into its slot of the batch; threads do it, and hardly need the interpreter for it."""
        name, start, stop = part
        if data is None:
            data = self._files.read_range(*part) if self.table.sizes else self._files.read(name)
        try:
            image = decode(data, self.side, None if at is None else np.random.default_rng([self.seed, at]))
        except (OSError, ValueError, SyntaxError) as error:  # Pillow raises these for damaged files
            where = f"{name}, bytes {start} to {stop}" if self.table.sizes else name
            raise PictureError(
                f"{self.location}/{where}: cannot be decoded: {error}; replace it, or leave it out"
            ) from None
        normalise(image, target)

    @cached_property
    def _files(self) -> Location:
        return open_location(self.location, self.store_seconds)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(self.workers, thread_name_prefix="decoder")


def load_pictures(config: DataConfig, seed: int, store_seconds: float = STORE_SECONDS) -> Dataset:
    """Load the pictures that the configuration names.

    Raises:
        PictureError, OSError: with what is wrong.
        ConfigError: Pillow is not installed.
    """
    with extra("data"):
        import PIL.Image  # noqa: F401 -- for `decode`, whose errors are the pictures'
    table = find(config.path, store_seconds=store_seconds)
    _check_sizes(config.path, table, store_seconds)
    train = Pictures(config.path, table, config.side, seed, config.workers, store_seconds=store_seconds)
    if config.held_out_path:
        other = find(config.held_out_path, table.classes, store_seconds)
        _check_sizes(config.held_out_path, other, store_seconds)
        return Dataset(train, replace(train, location=config.held_out_path, table=other), len(table.classes))
    if len(train) < 2:
        raise PictureError(f"data.path: {config.path} has {len(train)} pictures; allowed: 2 or more")
    order = np.random.default_rng([seed]).permutation(len(train))
    count = max(1, int(len(train) * config.held_out))
    return Dataset(
        replace(train, chosen=order[count:]), replace(train, chosen=order[:count]), len(table.classes)
    )


def find(location: str, classes: Sequence[str] = (), store_seconds: float = STORE_SECONDS) -> Table:
    """Find the pictures at a location.

    Args:
        location: a folder, or its URL.
        classes: their names, if they are given by other pictures of the same set.

    Raises:
        PictureError: there are none, or some are of another class, or the index is damaged.
        OSError: the location cannot be read.
    """
    files = open_location(location, store_seconds)
    try:
        table = Table.decode(files.read(INDEX))
    except FileNotFoundError:
        table = _of_folders(location, sorted(files.names()), classes)
    except ValueError as error:
        again = f"recreate it: python -m trainyard_train.data.pictures index {location}"
        raise PictureError(f"{location}/{INDEX} cannot be read: {error}; {again}") from None
    if classes and not set(table.classes) <= set(classes):
        unknown = sorted(set(table.classes) - set(classes))
        raise PictureError(f"{location}: got class {unknown[0]!r}; allowed: those of data.path")
    return table


def _of_folders(location: str, names: Sequence[str], classes: Sequence[str]) -> Table:
    pictures = [name for name in names if "/" in name and PurePosixPath(name).suffix.lower() in _KINDS]
    if not pictures:
        shards = any(name.endswith(".tar") for name in names)
        advice = (
            f"create an index: python -m trainyard_train.data.pictures index {location}"
            if shards
            else "correct data.path"
        )
        raise PictureError(f"{location}: no <class>/….jpg and no {INDEX}; {advice}")
    known = {
        name: number for number, name in enumerate(classes or sorted({n.split("/")[0] for n in pictures}))
    }
    if unknown := [name for name in pictures if name.split("/")[0] not in known]:
        raise PictureError(f"{location}: got class {unknown[0].split('/')[0]!r}; allowed: those of data.path")
    rows = [(number, 0, 0, known[name.split("/")[0]]) for number, name in enumerate(pictures)]
    return Table(pictures, list(known), np.array(rows, dtype=np.int64))


def _check_sizes(location: str, table: Table, store_seconds: float) -> None:
    files = open_location(location, store_seconds)
    with ThreadPoolExecutor(16) as pool:
        sizes = pool.map(files.size, table.files[: len(table.sizes)])
        problems = [
            f"{location}/{name} {'is missing' if found is None else f'has {found} bytes'}; {INDEX}: {size}"
            for name, size, found in zip(table.files, table.sizes, sizes, strict=False)
            if found != size
        ]
    if problems:
        raise PictureError("\n".join(f"{problem}; copy it again" for problem in problems))


def decode(data: bytes, side: int, chance: np.random.Generator | None) -> Image:
    """Decode a picture to shape (side, side, 3): a random crop, perhaps mirrored, or its centre.

    Raises:
        OSError, ValueError, SyntaxError: the data are no picture, or damaged.
    """
    from PIL import Image as pillow  # noqa: N813

    with pillow.open(io.BytesIO(data)) as image:
        width, height = image.size
        box = _random_box(width, height, chance) if chance else _middle(width, height)
        scale = max(side / (box[2] - box[0]), side / (box[3] - box[1]))
        image.draft("RGB", (int(width * scale), int(height * scale)))  # a JPEG is read in half, … of its size
        x, y = image.width / width, image.height / height
        colours = image if image.mode == "RGB" else image.convert("RGB")  # convert() copies
        cut = colours.resize(
            (side, side), pillow.Resampling.BILINEAR, (box[0] * x, box[1] * y, box[2] * x, box[3] * y)
        )
    pixels: Image = np.asarray(cut)
    return pixels[:, ::-1] if chance and chance.random() < 0.5 else pixels


def normalise(image: Image, target: Normalised) -> None:
    """Write a picture's channels, one after the other, to (3, side, side)."""
    np.multiply(np.ascontiguousarray(image.transpose(2, 0, 1)), _SCALE, out=target)
    np.subtract(target, _SHIFT, out=target)


def _random_box(width: int, height: int, chance: np.random.Generator) -> Box:
    """8 to 100 % of the area, 3:4 to 4:3 (Szegedy et al. 2015, as Goyal et al. use it)."""
    for _ in range(10):
        area = width * height * chance.uniform(0.08, 1)
        ratio = np.exp(chance.uniform(np.log(3 / 4), np.log(4 / 3)))
        wide, high = (area * ratio) ** 0.5, (area / ratio) ** 0.5
        if wide <= width and high <= height:
            left, top = chance.uniform(0, width - wide), chance.uniform(0, height - high)
            return left, top, left + wide, top + high
    return _middle(width, height)


def _middle(width: int, height: int) -> Box:
    half = _SEEN * min(width, height) / 2
    return width / 2 - half, height / 2 - half, width / 2 + half, height / 2 + half


def index_shards(location: str) -> Table:
    """Read the names in all shards at a location.

    Raises:
        PictureError: there are none, or a picture without its class.
    """
    files = open_location(location)
    names = sorted(name for name in files.names() if name.endswith(".tar"))
    rows, sizes = [], []
    for number, name in enumerate(names):
        sizes.append(files.size(name) or 0)
        try:
            rows += [(number, *record) for record in _records(files, name, sizes[-1])]
        except (tarfile.TarError, ValueError) as error:
            raise PictureError(f"{location}/{name}: {error}; recreate it") from None
    if not rows:
        raise PictureError(f"{location}: no .tar with pictures; correct the location")
    records = np.array(rows, dtype=np.int64)
    classes = [str(number) for number in range(int(records[:, 3].max()) + 1)]
    return Table(names, classes, records, sizes)


def _records(files: Location, name: str, size: int) -> Iterator[tuple[int, int, int]]:
    """First byte, size and class of each picture of a shard; what belongs together follows each other."""
    found: dict[str, tuple[int, int]] = {}
    with tarfile.open(fileobj=io.BufferedReader(_Reader(files, name, size), _READ_AT_ONCE)) as shard:
        for member in shard:
            key, _, kind = member.name.rpartition("/")[2].partition(".")
            if f".{kind.lower()}" in _KINDS:
                found[key] = (member.offset_data, member.size)
            elif kind == "cls":
                text = shard.extractfile(member)
                assert text is not None
                if key in found:
                    yield (*found.pop(key), int(text.read()))
    if found:
        raise ValueError(f"{next(iter(found))} has no .cls after its picture")


class _Reader(io.RawIOBase):
    """A file at a location, with random access."""

    def __init__(self, files: Location, name: str, size: int) -> None:
        self._files, self._name, self._size, self._at = files, name, size, 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        self._at = offset + {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size}[whence]
        return self._at

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 (no type for what can be written to in 3.11)
        stop = min(self._at + len(buffer), self._size)
        data = self._files.read_range(self._name, self._at, stop) if stop > self._at else b""
        buffer[: len(data)] = data
        self._at += len(data)
        return len(data)


def pack(out: Path, source: str, pictures_per_shard: int) -> Table:
    """Write folders of pictures as shards with their index, which comes last.

    Raises:
        PictureError: `source` has no pictures, or `out` has shards already.
    """
    if (out / INDEX).exists():
        raise PictureError(f"{out} has shards already; choose another folder, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    table, files = find(source), open_location(source)
    if table.sizes:
        raise PictureError(f"{source} has shards; allowed: folders of pictures")
    for first in range(0, len(table.files), pictures_per_shard):
        with tarfile.open(out / f"pictures-{first // pictures_per_shard:06d}.tar", "w") as shard:
            for number in range(first, min(first + pictures_per_shard, len(table.files))):
                name = table.files[number]
                kind = PurePosixPath(name).suffix.lower().lstrip(".")
                _add(shard, f"{number:08d}.{kind}", files.read(name))
                _add(shard, f"{number:08d}.cls", str(table.records[number, 3]).encode())
    packed = replace(index_shards(str(out)), classes=table.classes)
    FolderLocation(out).write(INDEX, packed.encode())
    return packed


def _add(shard: tarfile.TarFile, name: str, data: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(data)
    shard.addfile(member, io.BytesIO(data))


def main(arguments: Sequence[str] | None = None) -> int:
    """Make shards or their index; returns 0, or 2 if something is wrong with the source."""
    parser = argparse.ArgumentParser(
        prog="python -m trainyard_train.data.pictures",
        description="Write WebDataset shards of pictures, and their index.",
    )
    commands = parser.add_subparsers(dest="command", required=True)
    packing = commands.add_parser("pack", help="write shards of the folders of a source")
    packing.add_argument("out", type=Path)
    packing.add_argument("source", help="folder or URL with a folder for each class")
    packing.add_argument("--pictures-per-shard", type=int, default=1000)
    commands.add_parser("index", help="write the index of existing shards").add_argument("location")
    options = parser.parse_args(arguments)
    try:
        if options.command == "pack":
            location, table = str(options.out), pack(options.out, options.source, options.pictures_per_shard)
        else:
            location, table = options.location, index_shards(options.location)
            open_location(location).write(INDEX, table.encode())
    except (PictureError, OSError) as error:
        sys.stderr.write(f"training: {error}\n")
        return 2
    many = f"{len(table.records):,} pictures of {len(table.classes):,} classes in {len(table.files):,} shards"
    sys.stdout.write(f"{location}: {many}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
