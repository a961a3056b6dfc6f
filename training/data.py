"""Data in one global order that does not depend on how many ranks share it."""

from __future__ import annotations

import importlib.util
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Protocol

import numpy as np
import torch

from training.config import DataConfig
from training.places import STORE_SECONDS


@dataclass(frozen=True)
class Samples:
    """Inputs and targets, n of each: digits of shape (n, 1, 8, 8) in [0, 1] and their classes, tokens of
    shape (n, context) and those that follow, or pictures of shape (n, 3, side, side) and their classes.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    remote: bool = False

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: torch.Tensor, at: int | None = None) -> Samples:
        """Those at these places."""
        return Samples(self.inputs[indices], self.targets[indices])

    def close(self) -> None:
        """There is nothing to let go of."""

    def split(self, parts: int) -> list[Samples]:
        """As many parts, of the same size."""
        size = len(self) // parts
        return [
            Samples(self.inputs[i : i + size], self.targets[i : i + size]) for i in range(0, len(self), size)
        ]

    def to(self, device: torch.device) -> Samples:
        """The same on a device."""
        return Samples(self.inputs.to(device), self.targets.to(device))


class Source(Protocol):
    """Samples by their number."""

    @property
    def remote(self) -> bool:
        """Whether reading takes its time, so that it pays to read ahead."""

    def __len__(self) -> int: ...

    def take(self, indices: torch.Tensor, at: int | None = None) -> Samples:
        """Those at these places; varied by chance if `at`, the place of the first in the order, is given."""

    def close(self) -> None:
        """Let go of threads."""


@dataclass(frozen=True)
class Dataset:
    """What is trained on and what is kept for evaluation."""

    train: Source
    held_out: Source
    num_classes: int

    @property
    def identity(self) -> dict[str, int]:
        """What decides about the order of samples, besides the seed, and about the shape of the model."""
        return {"samples": len(self.train), "classes": self.num_classes}

    def close(self) -> None:
        """Let go of threads."""
        self.train.close()
        self.held_out.close()


@dataclass(frozen=True)
class GlobalOrder:
    """An endless stream of sample indices: epoch after epoch, each shuffled by (seed, epoch) alone.

    A run's place in it is one number, the samples consumed so far. World size decides only who reads
    which part of a batch, so a run may resume with another one and still see every sample once per epoch.
    """

    num_samples: int
    seed: int

    def indices(self, start: int, count: int) -> torch.Tensor:
        """The indices at places `start` … `start + count - 1` of the stream."""
        parts = []
        while count > 0:
            epoch, offset = divmod(start, self.num_samples)
            part = _permutation(self.num_samples, self.seed, epoch)[offset : offset + count]
            parts.append(part)
            start, count = start + len(part), count - len(part)
        return torch.from_numpy(np.concatenate(parts))

    def of_rank(self, cursor: int, batch_size_per_rank: int, rank: int) -> torch.Tensor:
        """A rank's part of the batch that starts at a cursor."""
        return self.indices(cursor + rank * batch_size_per_rank, batch_size_per_rank)


AHEAD = 2
"""Batches that are in the making beside the one that is trained on: one is read while another is decoded."""


@dataclass
class Loader:
    """One rank's batches; those of a remote source are read ahead while the training works on this one."""

    source: Source
    order: GlobalOrder
    batch_size_per_rank: int
    data_rank: int
    data_size: int
    _coming: dict[int, Future[Samples]] = field(default_factory=dict)
    """By their cursor."""

    def batch(self, cursor: int) -> Samples:
        """This rank's part of the batch that starts at a cursor.

        Raises:
            OSError, ValueError: the source cannot be read.
        """
        if not self.source.remote:
            return self._read(cursor)
        stride = self.batch_size_per_rank * self.data_size
        wanted = range(cursor, cursor + (AHEAD + 1) * stride, stride)
        known = self._coming
        self._coming = {at: known.get(at) or self._threads.submit(self._read, at) for at in wanted}
        return self._coming.pop(cursor).result()

    def close(self) -> None:
        """Read no further ahead."""
        if self.source.remote:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(AHEAD, thread_name_prefix="loader")

    def _read(self, cursor: int) -> Samples:
        first = cursor + self.data_rank * self.batch_size_per_rank
        return self.source.take(self.order.indices(first, self.batch_size_per_rank), first)


def load_dataset(
    config: DataConfig, context: int, seed: int, store_seconds: float = STORE_SECONDS
) -> Dataset:
    """What the configuration names.

    Raises:
        OSError, ValueError: it cannot be read, or is not what it should be.
    """
    if config.name == "pictures":
        from training.pictures import load_pictures

        return load_pictures(config, seed, store_seconds)
    return _text(config, context, store_seconds) if config.name == "text" else _digits(config, seed)


def _text(config: DataConfig, context: int, store_seconds: float) -> Dataset:
    """Shards of tokens, whose last windows are held out."""
    from training.text import TokenShards

    shards = TokenShards(config.path, context, store_seconds=store_seconds)
    shards.check()
    num_train = len(shards) - max(1, int(len(shards) * config.held_out))
    if num_train < 1:
        raise ValueError(f"data.path: {config.path} has {len(shards)} samples; allowed: 2 or more")
    held_out = shards.part(num_train, len(shards))
    return Dataset(shards.part(0, num_train), held_out, shards.vocabulary)


def _digits(config: DataConfig, seed: int) -> Dataset:
    """The handwritten digits that come with scikit-learn, split by a shuffle of `seed`.

    The file is read directly: importing scikit-learn would cost more than the rest of the start.

    Raises:
        FileNotFoundError: scikit-learn is not installed.
    """
    table = np.loadtxt(_digits_file(), delimiter=",", dtype=np.float32)
    table = table[np.random.default_rng([seed]).permutation(len(table))]
    inputs = torch.from_numpy(table[:, :-1].reshape(-1, 1, 8, 8) / 16)
    targets = torch.from_numpy(table[:, -1].astype(np.int64))
    num_held_out = max(1, int(len(table) * config.held_out))
    return Dataset(
        train=Samples(inputs[num_held_out:], targets[num_held_out:]),
        held_out=Samples(inputs[:num_held_out], targets[:num_held_out]),
        num_classes=10,
    )


def _digits_file() -> Path:
    package = importlib.util.find_spec("sklearn")
    if package is None or not package.submodule_search_locations:
        raise FileNotFoundError("the digits come with scikit-learn, which is not installed")
    return Path(package.submodule_search_locations[0]) / "datasets" / "data" / "digits.csv.gz"


@lru_cache(maxsize=2)
def _permutation(num_samples: int, seed: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng([seed, epoch]).permutation(num_samples)
