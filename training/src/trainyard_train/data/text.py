"""Tokenizes text into shards (a command), and reads shards as windows of tokens.

`python -m trainyard_train.data.text OUT SOURCE ...` makes shards; `TokenShards` reads them. A source is a
file or a folder: `.jsonl` or `.jsonl.zst` with a document in `text` of each line (the layout of The Pile), or
plain text, a document per file. Tokens are bytes, and 256 ends a document. `write_tokens` writes the tokens
of any other tokenizer in the same form: arrays of uint16, or of uint32 where the vocabulary has more than
65,536 tokens, and an index with that type (`dtype`).

A sample is a window of the whole sequence of tokens. So samples have one global order, and any number of
ranks can resume in the middle of an epoch, as with other data.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, BinaryIO, Final

import numpy as np
import torch

from trainyard_train.config_base import ConfigError, extra
from trainyard_train.data.locations import STORE_SECONDS, FileRange, Location, is_remote, open_location
from trainyard_train.data.samples import Samples

INDEX: Final = "index.json"
_COMMAND: Final = "python -m trainyard_train.data.text"
END: Final = 256
VOCABULARY: Final = 257
_CHUNK: Final = 1 << 20
"""Bytes of a compressed file that are read at once."""
_PLAIN: Final = frozenset({".txt", ".md", ".rst", ".py"})
_TYPES: Final[dict[str, np.dtype[Any]]] = {"uint16": np.dtype("<u2"), "uint32": np.dtype("<u4")}
"""Types of tokens, by their name in the index; an index without a name means the first."""


class ShardError(ValueError):
    """Shards do not match their index; each problem is a line."""


@dataclass(frozen=True)
class TokenShards:
    """Windows of a sequence of tokens, in a folder or, with a URL, in an object store."""

    location: str
    context: int
    """Tokens in one sample."""
    first: int = 0
    last: int | None = None
    """End (exclusive) of the windows, which begin with `first`; None: all from there on."""
    store_seconds: float = STORE_SECONDS

    def __len__(self) -> int:
        windows = (self._ends[-1] - 1) // self.context
        return (windows if self.last is None else min(self.last, windows)) - self.first

    def part(self, first: int, last: int) -> TokenShards:
        """The windows from one on and before another."""
        return replace(self, first=first, last=last)

    def take(self, indices: torch.Tensor, at: int | None = None) -> Samples:
        """Inputs and targets of shape (n, context); a target is the token that follows.

        Raises:
            ShardError: a token is not in the vocabulary, or a shard has become shorter.
            OSError: a shard cannot be read.
        """
        begins = (indices + self.first) * self.context
        parts = [list(self._parts(int(begin), self.context + 1)) for begin in begins]
        data = self._read([part for window in parts for part in window])
        tokens_of = (b"".join(next(data) for _ in window) for window in parts)
        windows = np.stack([np.frombuffer(window, dtype=self._type) for window in tokens_of])
        if (largest := int(windows.max())) >= self.vocabulary:
            allowed = f"below {self.vocabulary}, as {INDEX} says"
            raise ShardError(f"{self.location}: got token {largest}; allowed: {allowed}; recreate the shards")
        tokens = torch.from_numpy(windows.astype(np.int64))
        return Samples(tokens[:, :-1], tokens[:, 1:])

    @property
    def vocabulary(self) -> int:
        """Number of different tokens."""
        return int(self._index["vocabulary"])

    @property
    def is_remote(self) -> bool:
        """Whether reads are slow, so that prefetching helps."""
        return is_remote(self.location)

    def close(self) -> None:
        """No-op: shards hold nothing open."""

    def check(self) -> None:
        """Compare the shards' sizes with the index.

        Raises:
            ShardError: with every shard that is missing or of another size; or there is no index.
        """
        problems = []
        for shard in self._index["shards"]:
            size, expected = self._files.size(shard["name"]), self._type.itemsize * shard["tokens"]
            if size != expected:
                found = "is missing" if size is None else f"has {size} bytes"
                problem = f"{shard['name']} {found}; {INDEX} says {expected}; copy it again"
                has_wrong_type = size in {kind.itemsize * shard["tokens"] for kind in _TYPES.values()}
                problems.append(
                    f"{problem}, or correct dtype there ({self._type})" if has_wrong_type else problem
                )
        if not problems and len(self) < 1:
            problems.append(f"{self._ends[-1]} tokens; allowed: more than model.context ({self.context})")
        if problems:
            raise ShardError("\n".join(f"{self.location}: {problem}" for problem in problems))

    def _read(self, parts: Sequence[FileRange]) -> Iterator[bytes]:
        for (name, start, stop), data in zip(parts, self._files.read_parts(parts), strict=True):
            if len(data) < stop - start:
                found = f"ends at byte {start + len(data)}; expected: {stop} or more"
                raise ShardError(
                    f"{self.location}: {name} {found}; it changed while it was read: copy it again"
                )
            yield data

    def _parts(self, begin: int, count: int) -> Iterator[FileRange]:
        """Locations of some tokens, which may lie in two shards."""
        shard = int(np.searchsorted(self._ends, begin, side="right"))
        while count:
            offset = begin - (self._ends[shard - 1] if shard else 0)
            here = min(count, self._ends[shard] - begin)
            name = self._index["shards"][shard]["name"]
            yield name, self._type.itemsize * offset, self._type.itemsize * (offset + here)
            begin, count, shard = begin + here, count - here, shard + 1

    @cached_property
    def _type(self) -> np.dtype[Any]:
        name = self._index.get("dtype", "uint16")
        if name not in _TYPES:
            allowed = " or ".join(_TYPES)
            raise ShardError(f"{self.location}/{INDEX}: dtype: got {name!r}; allowed: {allowed}")
        if self.vocabulary > 1 << (8 * _TYPES[name].itemsize):
            problem = f"got {name} for a vocabulary of {self.vocabulary}; allowed: uint32"
            raise ShardError(f"{self.location}/{INDEX}: dtype: {problem}; recreate the shards")
        return _TYPES[name]

    @cached_property
    def _index(self) -> dict[str, Any]:
        try:
            index: dict[str, Any] = json.loads(self._files.read(INDEX))
            if not all(shard["tokens"] > 0 for shard in index["shards"]) or index["vocabulary"] < 1:
                raise ValueError("it lists no tokens")
        except (ValueError, KeyError, TypeError) as error:
            raise ShardError(
                f"{self.location}/{INDEX} cannot be read: {error!r}; recreate the shards"
            ) from None
        except FileNotFoundError:
            raise ShardError(
                f"{self.location} has no {INDEX}; create shards with {_COMMAND}, or correct data.path"
            ) from None
        return index

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(shard["tokens"] for shard in self._index["shards"]))

    @cached_property
    def _files(self) -> Location:
        return open_location(self.location, self.store_seconds)


def documents(sources: Sequence[Path]) -> Iterator[str]:
    """Every document of some files and folders, in the order of their names.

    Raises:
        ShardError: a file is of no known kind or damaged, or a line of it is not JSON with `text`.
    """
    for source in sources:
        paths = sorted(path for path in source.rglob("*") if _is_known(path)) if source.is_dir() else [source]
        for path in paths:
            if not _is_known(path) or not path.is_file():
                kinds = ", ".join((".jsonl", ".jsonl.zst", *sorted(_PLAIN)))
                raise ShardError(f"{path}: allowed: a folder, or a file of {kinds}")
            yield from _lines(path) if ".jsonl" in path.suffixes else [path.read_text(errors="replace")]


def write_shards(out: Path, texts: Iterable[str], tokens_per_shard: int) -> int:
    """Write documents as shards with their index, which comes last; returns the number of tokens.

    Raises:
        ShardError: there is no text, or `out` has shards already.
    """
    encoded = (np.frombuffer(each.encode(errors="replace"), dtype=np.uint8) for each in texts)
    ended = (np.append(each.astype(np.uint16), np.uint16(END)) for each in encoded)
    return write_tokens(out, ended, VOCABULARY, tokens_per_shard)


def write_tokens(
    out: Path, documents: Iterable[np.ndarray[Any, Any]], vocabulary: int, tokens_per_shard: int = 1 << 26
) -> int:
    """Write documents that a tokenizer of yours has encoded; returns the number of tokens.

    Args:
        out: folder of the shards.
        documents: tokens of each document, whole numbers from 0 on, with a token that marks its end.
        vocabulary: number of different tokens; above 65,536, tokens are written as uint32.
        tokens_per_shard: size of all shards but the last.

    Raises:
        ShardError: there are no tokens, one is not in the vocabulary, or `out` has shards already.
    """
    if (out / INDEX).exists():
        raise ShardError(f"{out} has shards already; choose another folder, or remove it")
    out.mkdir(parents=True, exist_ok=True)
    name = "uint16" if vocabulary <= 1 << 16 else "uint32"
    shards: list[dict[str, Any]] = []
    for part in _cut((_checked(each, vocabulary) for each in documents), tokens_per_shard):
        shards.append({"name": f"shard-{len(shards):05d}.bin", "tokens": len(part)})
        part.astype(_TYPES[name]).tofile(out / shards[-1]["name"])
    if not shards:
        raise ShardError("no document was found")
    index = {"vocabulary": vocabulary, "dtype": name, "shards": shards}
    (out / INDEX).write_text(json.dumps(index, indent=1) + "\n")
    return sum(shard["tokens"] for shard in shards)


def _checked(tokens: np.ndarray[Any, Any], vocabulary: int) -> np.ndarray[Any, Any]:
    if len(tokens) and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
        wrong = int(tokens.max()) if int(tokens.max()) >= vocabulary else int(tokens.min())
        raise ShardError(f"got token {wrong}; allowed: 0 to {vocabulary - 1}, as the vocabulary requires")
    return tokens


def _cut(documents: Iterable[np.ndarray[Any, Any]], size: int) -> Iterator[np.ndarray[Any, Any]]:
    """The tokens of all documents in parts of one size; the last may be smaller."""
    buffer: list[np.ndarray[Any, Any]] = []
    pending = 0
    for tokens in documents:
        buffer.append(tokens)
        pending += len(tokens)
        if pending >= size:
            whole = np.concatenate(buffer)
            full = len(whole) - len(whole) % size
            yield from np.split(whole[:full], full // size)
            buffer, pending = [whole[full:]], len(whole) - full
    if pending:
        yield np.concatenate(buffer)


def _is_known(path: Path) -> bool:
    return path.suffix in _PLAIN or path.name.endswith((".jsonl", ".jsonl.zst"))


def _lines(path: Path) -> Iterator[str]:
    with path.open("rb") as raw:
        lines = _lines_of(_decompressed(path, raw)) if path.suffix == ".zst" else raw
        for number, line in enumerate(lines, start=1):
            try:
                yield str(json.loads(line)["text"])
            except (ValueError, KeyError, TypeError) as error:
                allowed = 'allowed: a JSON object with "text", in UTF-8; correct or remove the line'
                raise ShardError(f"{path}:{number}: {error!r}; {allowed}") from None


def _lines_of(chunks: Iterable[bytes]) -> Iterator[bytes]:
    rest = b""
    for chunk in chunks:
        *lines, rest = (rest + chunk).split(b"\n")
        yield from lines
    if rest:
        yield rest


def _decompressed(path: Path, raw: BinaryIO) -> Iterator[bytes]:
    """The content of a file of Zstandard, which may have several frames.

    Raises:
        ShardError: the file is no Zstandard file, damaged, or ends too soon.
        ConfigError: zstandard is not installed.
    """
    with extra("data"):
        import zstandard

    data = raw.read(_CHUNK)
    while data:
        frame = zstandard.ZstdDecompressor().decompressobj()
        while not frame.eof:
            try:
                if not data:
                    raise zstandard.ZstdError("the file ends within a frame")
                yield frame.decompress(data)
            except zstandard.ZstdError as error:
                raise ShardError(f"{path}: cannot be decompressed: {error}; copy it again") from None
            data = frame.unused_data or raw.read(_CHUNK)


def main(arguments: Sequence[str] | None = None) -> int:
    """Make shards; returns 0, or 2 if something is wrong with the sources."""
    parser = argparse.ArgumentParser(
        prog=_COMMAND, description="Write token shards of text files, .jsonl or .jsonl.zst."
    )
    parser.add_argument("out", type=Path)
    parser.add_argument("sources", type=Path, nargs="+")
    parser.add_argument("--tokens-per-shard", type=int, default=1 << 26)
    options = parser.parse_args(arguments)
    try:
        count = write_shards(options.out, documents(options.sources), options.tokens_per_shard)
    except (ShardError, ConfigError, OSError) as error:
        sys.stderr.write(f"training: {error}\n")
        return 2
    sys.stdout.write(f"{options.out}: {count:,} tokens\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
