"""`Update`: combines a step's metrics and gradient norm over all ranks in one all-reduce, then applies the
gradients with loss scaling and clipping.

The all-reduce on the device has all that the ranks must know of a step: its loss, the norm of the gradient,
and whether any rank has a preemption notice or a due save. Under DDP it runs beside the backward pass, after
which all ranks know the norm of the gradient.

The device decides whether loss and gradient are finite, and what to divide the gradient by; the optimizer's
kernels read that. The host reads the same numbers later (`Late`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
import torch.distributed as dist

from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.tensors import is_distributed, local_of, replica_of

_EPSILON: Final = 1e-6
"""Added to the norm before a division, as in `torch.nn.utils.clip_grad_norm_`."""


class LossScale(torch.amp.GradScaler):
    """GradScaler, which keeps gradients of float16 from vanishing; all ranks decide together on its scale."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device.type)
        self._one = torch.ones((), device=device)
        self.value()  # creates the scale

    def value(self) -> torch.Tensor:
        """The scale: shape (), float32, on the device."""
        scaled: torch.Tensor = self.scale(self._one)
        return scaled

    def agreed(self, optimizer: torch.optim.Optimizer, found_inf: torch.Tensor) -> None:
        """Halve the scale after an overflow of any rank, double it after 2000 steps without one.

        The `step` of `GradScaler` would look at this rank's gradients alone.
        """
        self._per_optimizer_states[id(optimizer)]["found_inf_per_device"] = {found_inf.device: found_inf}
        self.update()

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue from a manifest's state; from the beginning if it has none."""
        if state:
            self.load_state_dict({**self.state_dict(), **state})


@dataclass(frozen=True)
class Totals:
    """Sums of one step or evaluation over all ranks; `notices` and `due` count ranks."""

    loss: float
    """Sum of the losses over the targets, in nats."""
    hits: float
    targets: float
    notices: float = 0
    """Number of ranks that have a preemption notice."""
    due: float = 0
    """1 if rank 0 finds that a checkpoint is due by its cost, else 0."""
    squared_norm: float = 0
    """Squared norm of the gradient, before it was clipped."""


@dataclass(frozen=True)
class MetricSums:
    """Metrics of a step from its backward pass."""

    values: torch.Tensor
    """The first five of `Totals`: shape (5,), float64, on the device."""
    summing: dist.Work | None = None
    """The sum of the values over all ranks, which has begun; then the gradients are summed, too."""


@dataclass
class Update:
    """The optimizer's part of a step."""

    optimizer: torch.optim.Optimizer
    """One of `optim.optimizer`, whose kernels read `found_inf` and `grad_scale`."""
    mesh: Mesh
    clip_norm: float = 0
    """Maximum norm of the gradient; 0: any."""
    loss_scale: LossScale | None = None

    def agree(self, metrics: MetricSums) -> torch.Tensor:
        """Aggregate a step's `Totals` over the ranks; all ranks must call it, after the backward pass.

        Returns:
            shape (6,), float64, on the device, the same on all ranks.
        """
        parameters = [each for group in self.optimizer.param_groups for each in group["params"]]
        copies = 1 if metrics.summing else self.mesh.world_size
        square = squared_norm(parameters, copies)
        if self.loss_scale:
            square = square / self.loss_scale.value().double().square()
        if metrics.summing:
            metrics.summing.wait()
        totals = torch.cat([metrics.values, square[None]])
        return totals if metrics.summing else self.mesh.sum(totals)

    def apply(self, totals: torch.Tensor) -> None:
        """Take the optimizer's step, unless loss or gradient are no numbers: then nothing changes."""
        found_inf = ((totals[0] + totals[5]) * 0 != 0).float()  # a number times 0 is 0; no other is
        self.optimizer.found_inf = found_inf  # type: ignore[attr-defined]
        scale = self.loss_scale.value() if self.loss_scale else None
        if self.clip_norm:
            clip = ((totals[5].sqrt() + _EPSILON) / self.clip_norm).clamp(min=1).float()
            scale = clip if scale is None else scale * clip
        self.optimizer.grad_scale = scale  # type: ignore[attr-defined]
        self.optimizer.step()
        if self.loss_scale:
            self.loss_scale.agreed(self.optimizer, found_inf)


def squared_norm(parameters: Iterable[torch.Tensor], ranks: int) -> torch.Tensor:
    """This rank's term of the squared global norm of the gradient, which is the sum over so many ranks.

    A piece that several ranks have counts on each of them by one over their number.

    Returns:
        shape (), float64, on the parameters' device; the host waits for nothing.
    """
    by_copies: dict[int, list[torch.Tensor]] = {}
    device = torch.device("cpu")
    for parameter in parameters:
        device, gradient = parameter.device, parameter.grad
        if gradient is None or not local_of(gradient).numel():
            continue
        copies = ranks
        if is_distributed(gradient):
            copies = ranks // gradient.device_mesh.size() * replica_of(gradient)[1]  # type: ignore[attr-defined]
        by_copies.setdefault(copies, []).append(local_of(gradient))
    parts = [
        torch.stack(torch._foreach_norm(gradients)).double().square().sum() / copies
        for copies, gradients in by_copies.items()
    ]
    return sum(parts[1:], parts[0]) if parts else torch.zeros((), dtype=torch.float64, device=device)


def to_device(values: Sequence[float], device: torch.device) -> torch.Tensor:
    """Some numbers, as float64; a copy from ordinary memory would wait for all that a GPU has to do."""
    host = torch.tensor([float(value) for value in values], dtype=torch.float64)
    return host.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else host
