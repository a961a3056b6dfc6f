"""The section `optim` of a run's configuration, and its learning rate schedule: scaling with the batch size
(linearly, by the square root, or not at all), warmup, a ramp when the batch changes, and warnings about
unproven rates.

The linear scaling rule: when the batch is multiplied by k, multiply the rate by k, and climb there
gradually (Goyal et al. 2017, "Accurate, Large Minibatch SGD", section 2). It holds for SGD up to a point;
Adam's rate scales with the square root of k while gradient noise dominates (Malladi et al. 2022).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

from pydantic import Field, model_validator

from trainyard_train.config_base import ConfigSection

LINEAR_FAILED: Final = 16
"""Smallest k at which the linear rule failed in one of five runs in docs/dev/benchmark-methods.md; at 64 all
failed. In the paper it held up to 32, with warmup."""


class OptimConfig(ConfigSection):
    """The optimizer and how its rate follows the size of the batch."""

    name: Literal["sgd", "adamw"] = "sgd"
    lr: float = Field(default=0.05, gt=0)
    """Learning rate at `reference_batch_size`."""
    momentum: float = Field(default=0.9, ge=0, lt=1)
    weight_decay: float = Field(default=1e-4, ge=0)
    clip_norm: float = Field(default=0, ge=0)
    """Maximum norm of the gradient of all parameters together; larger gradients are clipped. 0: no limit."""
    scaling: Literal["linear", "sqrt", "none"] = "none"
    reference_batch_size: int = Field(default=64, ge=1)
    """Batch size, in samples, that `lr` was tuned with."""
    warmup_steps: int = Field(default=0, ge=0)
    """Steps over which the rate rises from `lr` to its scaled value; without scaling, from near 0 to `lr`."""

    @model_validator(mode="after")
    def _adam_does_not_scale_linearly(self) -> OptimConfig:
        if self.name == "adamw" and self.scaling == "linear":
            raise ValueError(
                "optim.scaling: got 'linear' with adamw; it holds for sgd; with adamw use sqrt or none"
            )
        return self


@dataclass(frozen=True)
class Schedule:
    """A rate that changes linearly to its target, and is constant from there."""

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


def scaling_warnings(config: OptimConfig, batch_size: int) -> list[str]:
    """What is not proven of the rate for a batch of so many samples, with advice."""
    k = batch_size / config.reference_batch_size
    if config.scaling == "linear" and k >= LINEAR_FAILED:
        why = f"one of five measured runs failed at {LINEAR_FAILED} times, and all at 64"
    elif config.scaling == "sqrt" and config.name == "sgd" and k > 1:
        why = "it is Adam's rule, and sgd learns faster by linear"
    else:
        return []
    where = f"optim.scaling: {config.scaling}, at {k:g} times optim.reference_batch_size"
    return [f"{where}: {why}: compare the held-out loss with that of a smaller batch; set optim.warmup_steps"]


def schedule_for(config: OptimConfig, batch_size: int, step: int, previous: Schedule | None) -> Schedule:
    """The schedule from a step on.

    With a scaling rule it ramps from `lr` to the scaled rate; without one, as is usual, from near 0 to `lr`.
    A run that resumes with the same batch continues as if it had never stopped. With another
    batch (another world size) the rate is rescaled, and ramps from where it was over `warmup_steps`.
    """
    target, ramp_steps = scaled_rate(config, batch_size), config.warmup_steps
    if previous is None:
        unscaled = config.scaling == "none" and ramp_steps > 0
        return Schedule(config.lr / ramp_steps if unscaled else config.lr, target, step, ramp_steps)
    if previous.target == target:
        return previous
    return Schedule(previous.rate(step), target, step, config.warmup_steps)
