"""`Loader`: loads each rank's batches in a global order that does not depend on the number of ranks; reads
remote ones ahead.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import torch

from trainyard_train.data.samples import Samples, SampleSource


@dataclass(frozen=True)
class GlobalOrder:
    """An endless stream of sample indices: epoch after epoch, each shuffled by (seed, epoch) alone.

    A run's position in it is one number, the samples consumed so far. World size decides only who reads
    which part of a batch, so a run may resume with another one and still see every sample once per epoch.
    """

    num_samples: int
    seed: int

    def indices(self, start: int, count: int) -> torch.Tensor:
        """The indices at positions `start` … `start + count - 1` of the stream."""
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
"""Batches that are prepared ahead of the current one: one is read while another is decoded."""


@dataclass
class Loader:
    """Loads one rank's batches; reads those of a remote source ahead of the training."""

    source: SampleSource
    order: GlobalOrder
    batch_size_per_rank: int
    data_rank: int
    data_size: int
    _coming: dict[int, Future[Samples]] = field(default_factory=dict)
    """Batches that are being prepared, by their cursor."""

    def batch(self, cursor: int) -> Samples:
        """This rank's part of the batch that starts at a cursor.

        Raises:
            OSError, ValueError: the source cannot be read.
        """
        if not self.source.is_remote:
            return self._read(cursor)
        stride = self.batch_size_per_rank * self.data_size
        wanted = range(cursor, cursor + (AHEAD + 1) * stride, stride)
        known = self._coming
        self._coming = {at: known.get(at) or self._threads.submit(self._read, at) for at in wanted}
        return self._coming.pop(cursor).result()

    def close(self) -> None:
        """Read no further ahead."""
        if self.source.is_remote:
            self._threads.shutdown(wait=False, cancel_futures=True)

    @cached_property
    def _threads(self) -> ThreadPoolExecutor:
        return ThreadPoolExecutor(AHEAD, thread_name_prefix="loader")

    def _read(self, cursor: int) -> Samples:
        return self.source.take(self.order.of_rank(cursor, self.batch_size_per_rank, self.data_rank))


@lru_cache(maxsize=2)
def _permutation(num_samples: int, seed: int, epoch: int) -> np.ndarray[tuple[int], np.dtype[np.int64]]:
    return np.random.default_rng([seed, epoch]).permutation(num_samples)
