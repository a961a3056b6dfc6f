"""Writes shards of tokens, and reads them as windows.

`write_tokens` writes the tokens of any tokenizer (examples/tokens.py trains one): arrays of uint16, or of
uint32 where the vocabulary has more than 65,536 tokens, and an index with that type (`dtype`). `TokenShards`
reads them.

A sample is a window of the whole sequence of tokens. So samples have one global order, and any number of
ranks can resume in the middle of an epoch, as with other data.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import accumulate
from pathlib import Path
from typing import Any, Final

import numpy as np
import torch

from trainyard_train.checkpointing.checkpoint import CheckpointStore
from trainyard_train.checkpointing.digests import Data
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.data.samples import Samples

INDEX: Final = "index.json"
STORE_SECONDS: Final = 60.0
"""Default timeout of one request to an object store with its retries, in seconds."""
FileRange = tuple[str, int, int]
"""Part of a file: its name, the first byte, and the end (exclusive)."""
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

    def take(self, indices: torch.Tensor) -> Samples:
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
        return "://" in self.location

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

    def _read(self, parts: Sequence[FileRange]) -> Iterator[Data]:
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
                f"{self.location} has no {INDEX}; create shards with write_tokens, as"
                " examples/tokens.py does, or correct data.path"
            ) from None
        return index

    @cached_property
    def _ends(self) -> list[int]:
        return list(accumulate(shard["tokens"] for shard in self._index["shards"]))

    @cached_property
    def _files(self) -> CheckpointStore:
        return open_store(self.location, timeout_seconds=self.store_seconds)


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
