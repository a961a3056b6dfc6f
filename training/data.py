"""Data in one global order that does not depend on how many ranks share it."""

from __future__ import annotations

import importlib.util
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

import numpy as np
import torch

from training.config import DataConfig


@dataclass(frozen=True)
class Samples:
    """Inputs of shape (n, 1, 8, 8) in [0, 1] and targets of shape (n,)."""

    inputs: torch.Tensor
    targets: torch.Tensor

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: torch.Tensor) -> Samples:
        """Those at these places."""
        return Samples(self.inputs[indices], self.targets[indices])

    def split(self, parts: int) -> list[Samples]:
        """As many parts, of the same size."""
        size = len(self) // parts
        return [
            Samples(self.inputs[i : i + size], self.targets[i : i + size]) for i in range(0, len(self), size)
        ]

    def to(self, device: torch.device) -> Samples:
        """The same on a device."""
        return Samples(self.inputs.to(device), self.targets.to(device))


@dataclass(frozen=True)
class Dataset:
    """What is trained on and what is kept for evaluation."""

    train: Samples
    held_out: Samples
    num_classes: int


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


def load_dataset(config: DataConfig, seed: int) -> Dataset:
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
