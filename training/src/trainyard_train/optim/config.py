"""Settings of the optimizer and its learning rate: the section `optim` of a run's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainyard_train.config_base import ConfigSection


class OptimConfig(ConfigSection):
    """The optimizer and how its rate follows the size of the batch (see `optim.schedule`)."""

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
