"""Forward and backward passes of a training step, and forward passes of an evaluation: micro-batches, mixed
precision, pipeline stages.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from trainyard_train.data.samples import Samples
from trainyard_train.parallelism.config import Precision
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.parallelism.parallelize import Carrying, carrying, is_sharded, unwrap
from trainyard_train.tensors import local_of
from trainyard_train.update import LossScale, MetricSums, to_device

if TYPE_CHECKING:
    from torch.distributed.pipelining import ScheduleGPipe

Flags = Callable[[], Sequence[bool]]
"""Returns whether this rank has a preemption notice, and whether a checkpoint is due."""


@dataclass
class Computation:
    """Forward and backward passes of a model that each rank has from its first layer to its last."""

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
        carrying = self._carrying
        metrics: list[torch.Tensor] = []
        parts = batch.split(self.micro_batches)
        for number, part in enumerate(parts, start=1):
            is_last = number == len(parts)
            with self._synchronized(is_last):
                with self._autocast():
                    outputs = self.model(part.inputs)
                    loss = loss_of(outputs, part.targets)
                metrics.append(batch_metrics(loss, outputs, part.targets))
                if not is_last:
                    self._scaled(loss).backward()
                    continue
                own = torch.cat([sum(metrics[1:], metrics[0]), to_device(flags(), self.mesh.device)])
                on_loss()
                if carrying:
                    carrying.backward(self._scaled(loss), own)
                else:
                    self._scaled(loss).backward()
        return (
            MetricSums(carrying.sums(self.mesh.world_size), is_reduced=True) if carrying else MetricSums(own)
        )

    def evaluate(self, batch: Samples) -> torch.Tensor:
        """Loss, hits and number of targets of this rank's batch, summed."""
        model = unwrap(self.model)
        model.eval()
        with torch.no_grad(), self._autocast():
            outputs = model(batch.inputs)
            loss = loss_of(outputs, batch.targets)
        model.train()
        return batch_metrics(loss, outputs, batch.targets)

    @cached_property
    def _carrying(self) -> Carrying | None:
        return carrying(self.model)

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
        if isinstance(self.model, nn.parallel.DistributedDataParallel) and not is_last:
            with self.model.no_sync():
                yield
        else:
            yield


@dataclass
class PipelinedComputation(Computation):
    """Forward and backward passes over pipeline stages: micro-batches flow through the ranks (GPipe)."""

    def __post_init__(self) -> None:
        from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

        self._stage_type, self._schedule_type = PipelineStage, ScheduleGPipe
        self._ranks = _groups(self.mesh)
        self._schedules: dict[tuple[int, int], ScheduleGPipe] = {}

    def backward(self, batch: Samples, flags: Flags, on_loss: Callable[[], None]) -> MetricSums:
        outputs, losses = self._run(batch, self.micro_batches)
        on_loss()
        if self.mesh.data_size > 1:
            for parameter in self.model.parameters():
                gradient = local_of(parameter.grad)
                dist.all_reduce(gradient, group=self._ranks["data"])
                gradient /= self.mesh.data_size
        own = self._metrics(outputs, losses, batch)
        return MetricSums(torch.cat([own, to_device(flags(), self.mesh.device)]))

    def evaluate(self, batch: Samples) -> torch.Tensor:
        self.model.eval()
        with torch.no_grad():
            outputs, losses = self._run(batch, 1)
        self.model.train()
        return self._metrics(outputs, losses, batch)

    def _run(self, batch: Samples, micro_batches: int) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
        """Outputs and mean losses, which only the last stage has."""
        schedule = self._schedule(len(batch), micro_batches)
        run = schedule.step if torch.is_grad_enabled() else schedule.eval
        losses: list[torch.Tensor] = []
        inputs = [batch.inputs] if self.mesh.stage == 0 else []
        is_last = self.mesh.stage == self.mesh.pipeline - 1
        with self._autocast():
            outputs = run(
                *inputs, target=batch.targets if is_last else None, losses=losses if is_last else None
            )
        return outputs, losses

    def _schedule(self, size: int, micro_batches: int) -> ScheduleGPipe:
        """Made once for each size of batch: stages agree on shapes when they first run."""
        if (size, micro_batches) not in self._schedules:
            stage = self._stage_type(
                self.model,
                self.mesh.stage,
                self.mesh.pipeline,
                self.mesh.device,
                group=self._ranks["pipeline"],
            )
            self._schedules[size, micro_batches] = self._schedule_type(
                stage, micro_batches, loss_fn=self._scaled_loss
            )
        return self._schedules[size, micro_batches]

    def _scaled_loss(self, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        loss = loss_of(outputs, targets)
        return self.loss_scale.scale(loss) if self.loss_scale else loss

    def _metrics(
        self, outputs: torch.Tensor | None, losses: list[torch.Tensor], batch: Samples
    ) -> torch.Tensor:
        if outputs is None or not losses:
            return torch.zeros(3, dtype=torch.float64, device=self.mesh.device)
        loss = torch.stack(losses).mean()
        if self.loss_scale:
            loss = loss / self.loss_scale.value()
        return batch_metrics(loss, outputs, batch.targets)


def loss_of(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Mean cross entropy in nats: outputs of shape (…, classes), targets of shape (…)."""
    return functional.cross_entropy(outputs.flatten(0, -2), targets.flatten())


def batch_metrics(loss: torch.Tensor, outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Loss, hits and number of targets, summed over a batch; shape (3,), float64."""
    count = torch.full((), targets.numel(), device=outputs.device)  # a kernel, and no copy to wait for
    hits = (outputs.argmax(-1) == targets).sum()
    return torch.stack([(loss.detach() * count).double(), hits.double(), count.double()])


def _groups(mesh: Mesh) -> dict[str, dist.ProcessGroup]:
    """The ranks that differ from this one only in their stage, and those that differ only in their data."""
    from torch.distributed.device_mesh import init_device_mesh

    sizes = (mesh.pipeline, mesh.data_size, mesh.tensor)
    devices = init_device_mesh(mesh.device.type, sizes, mesh_dim_names=("pipeline", "data", "tensor"))
    return {name: devices.get_group(name) for name in ("pipeline", "data")}
