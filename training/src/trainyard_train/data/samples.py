"""Types of data: `Samples` in memory, the interface `SampleSource`, and `Dataset` with a training and a
held-out part.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class Samples:
    """Inputs and targets, n of each: digits of shape (n, 1, 8, 8) in [0, 1] and their classes, or tokens of
    shape (n, context) and those that follow.
    """

    inputs: torch.Tensor
    targets: torch.Tensor
    is_remote: bool = False

    def __len__(self) -> int:
        return len(self.targets)

    def take(self, indices: torch.Tensor) -> Samples:
        """Return the samples at these positions."""
        return Samples(self.inputs[indices], self.targets[indices])

    def split(self, parts: int) -> list[Samples]:
        """Return so many parts of the same size."""
        if parts == 1:
            return [self]
        size = len(self) // parts
        return [
            Samples(self.inputs[i : i + size], self.targets[i : i + size]) for i in range(0, len(self), size)
        ]

    def to(self, device: torch.device) -> Samples:
        """Return a copy on a device; pinned, since a copy from pageable memory is synchronous."""
        if device.type == "cpu":
            return Samples(self.inputs.to(device), self.targets.to(device))
        inputs, targets = self.inputs.pin_memory(), self.targets.pin_memory()
        return Samples(inputs.to(device, non_blocking=True), targets.to(device, non_blocking=True))


class SampleSource(Protocol):
    """Samples by their index."""

    @property
    def is_remote(self) -> bool:
        """Whether reading is slow, so that batches are read ahead."""

    def __len__(self) -> int: ...

    def take(self, indices: torch.Tensor) -> Samples:
        """Return the samples at these positions."""


@dataclass(frozen=True)
class Dataset:
    """A training set and a held-out set for evaluation."""

    train: SampleSource
    held_out: SampleSource
    num_classes: int

    @property
    def identity(self) -> dict[str, int]:
        """Sizes that must match on resume: sample count and class count."""
        return {"samples": len(self.train), "classes": self.num_classes}
