"""Forward and backward passes of a training step, and forward passes of an evaluation: micro-batches, mixed
precision.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from trainyard_train.data.samples import Samples
from trainyard_train.parallelism.config import Precision
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.parallelism.parallelize import is_sharded, unwrap
from trainyard_train.update import LossScale, MetricSums, to_device

Flags = Callable[[], Sequence[bool]]
"""Returns whether this rank has a preemption notice, and whether a checkpoint is due."""


@dataclass
class Computation:
    """Forward and backward passes of a model."""

    model: nn.Module
    mesh: Mesh
    micro_batches: int = 1
    precision: Precision = "float32"
    loss_scale: LossScale | None = None

    def backward(self, batch: Samples, flags: Flags, on_loss: Callable[[], None]) -> MetricSums:
        """Accumulate in the model the gradients of the mean loss over all ranks' batches.

        Args:
            batch: this rank's part.
            flags: asked, once this rank has its loss, what others must know of it.
            on_loss: called when this rank has its loss, and from here on needs the others.
        """
        metrics: list[torch.Tensor] = []
        parts = batch.split(self.micro_batches)
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            with self._synchronized(is_last):
                with self._autocast():
                    outputs = self.model(part.inputs)
                    loss = loss_of(outputs, part.targets)
                metrics.append(batch_metrics(loss, outputs, part.targets))
                if is_last:
                    own = torch.cat([sum(metrics[1:], metrics[0]), to_device(flags(), self.mesh.device)])
                    on_loss()
                    summing = dist.all_reduce(own, async_op=True) if self._is_replicated else None
                self._scaled(loss).backward()
        return MetricSums(own, summing)

    def evaluate(self, batch: Samples) -> torch.Tensor:
        """Loss, hits and number of targets of this rank's batch, summed."""
        model = unwrap(self.model)
        model.eval()
        with torch.no_grad(), self._autocast():
            outputs = model(batch.inputs)
            loss = loss_of(outputs, batch.targets)
        model.train()
        return batch_metrics(loss, outputs, batch.targets)

    @property
    def _is_replicated(self) -> bool:
        return isinstance(self.model, nn.parallel.DistributedDataParallel)

    def _scaled(self, loss: torch.Tensor) -> torch.Tensor:
        loss = loss if self.micro_batches == 1 else loss / self.micro_batches
        return self.loss_scale.scale(loss) if self.loss_scale else loss

    def _autocast(self) -> AbstractContextManager[Any]:
        if self.precision == "float32" or is_sharded(self.model):  # FSDP has its precision policy
            return nullcontext()
        return torch.autocast(self.mesh.device.type, dtype=getattr(torch, self.precision))

    @contextmanager
    def _synchronized(self, is_last: bool) -> Iterator[None]:
        """Let ranks sum their gradients only in the last backward pass of a step.

        FSDP cuts the gradients of each micro-batch at once, so that no rank ever has whole ones; only what
        copies of the weights (HSDP) have to add up waits for the last.
        """
        if is_sharded(self.model):
            self.model.set_requires_all_reduce(is_last)  # type: ignore[operator]
        if self._is_replicated and not is_last:
            with self.model.no_sync():  # type: ignore[operator]
                yield
        else:
            yield


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats: outputs of shape (…, classes), targets of shape (…)."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def batch_metrics(loss: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Loss, hits and number of targets, summed over a batch; shape (3,), float64."""
    count = torch.full((), targets.numel(), device=outputs.device)  # a kernel, and no copy to wait for
    hits = (outputs.argmax(-1) == targets).sum()
    return torch.stack([(loss.detach() * count).double(), hits.double(), count.double()])
