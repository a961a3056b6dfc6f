"""Optimizers, and how the learning rate follows the size of the batch.

The linear scaling rule: when the batch is multiplied by k, multiply the rate by k, and climb there
gradually (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2). It holds for SGD up to a point;
Adam's rate goes with the square root of k while gradient noise dominates (Malladi et al. 2022).
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch

from training.config import OptimConfig


@dataclass(frozen=True)
class Schedule:
    """A rate that climbs, or falls, in a straight line to its target and stays there."""

    start: float
    target: float
    from_step: int = 0
    ramp_steps: int = 0

    def rate(self, step: int) -> float:
        """The learning rate of a step, counted from 0."""
        done = step - self.from_step
        if done >= self.ramp_steps:
            return self.target
        return self.start + (self.target - self.start) * done / self.ramp_steps


def scaled_rate(config: OptimConfig, batch_size: int) -> float:
    """The rate for a global batch of so many samples.

    Only plain numbers go in, so that the same batch gives the same rate on every rank to the last bit.
    """
    k = batch_size / config.reference_batch_size
    return config.lr * {"linear": k, "sqrt": math.sqrt(k), "none": 1.0}[config.scaling]


def schedule_for(config: OptimConfig, batch_size: int, step: int, previous: Schedule | None) -> Schedule:
    """The schedule from a step on.

    It begins at `lr` and goes to what the rule makes of it; with no rule it begins near 0, as is usual, and
    goes to `lr`. A run that resumes with the same batch goes on as if it had never stopped. With another
    batch (another world size) the rate is rescaled, and ramps from where it was over `warmup_steps`.
    """
    target, ramp_steps = scaled_rate(config, batch_size), config.warmup_steps
    if previous is None:
        unscaled = config.scaling == "none" and ramp_steps > 0
        return Schedule(config.lr / ramp_steps if unscaled else config.lr, target, step, ramp_steps)
    if previous.target == target:
        return previous
    return Schedule(previous.rate(step), target, step, config.warmup_steps)


def build_optimizer(
    config: OptimConfig, parameters: Iterable[torch.nn.Parameter], *, together: bool = True
) -> torch.optim.Optimizer:
    """SGD with Nesterov momentum (where there is momentum), or AdamW.

    Args:
        config: which, and its settings.
        parameters: to be optimized.
        together: whether PyTorch may update many at once; not where some are cut over ranks and others are
            not. Those that are whole are updated in one pass over each (fused), which is the fastest.
    """
    parameters = list(parameters)
    whole = not any(is_distributed(parameter) for parameter in parameters)
    how: dict[str, Any] = {"foreach": False} if not together else {"fused": True} if whole else {}
    if config.name == "adamw":
        return torch.optim.AdamW(parameters, lr=config.lr, weight_decay=config.weight_decay, **how)
    return torch.optim.SGD(
        parameters,
        lr=config.lr,
        momentum=config.momentum,
        weight_decay=config.weight_decay,
        nesterov=config.momentum > 0,
        **how,
    )


def is_distributed(tensor: torch.Tensor) -> bool:
    """Whether it is cut over ranks: a DTensor, whose type is not imported where it is not used."""
    return hasattr(tensor, "to_local")


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Use this learning rate in the next step."""
    for group in optimizer.param_groups:
        group["lr"] = rate
