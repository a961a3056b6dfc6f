"""Settings of the model: the section `model` of a run's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainyard_train.config_base import ConfigSection


class ModelConfig(ConfigSection):
    """Which network to train."""

    name: Literal["mlp", "convnet", "gpt"] = "mlp"
    hidden: int = Field(default=64, ge=1, le=1 << 20)
    """Width, or channels of the first layer."""
    dropout: float = Field(default=0.1, ge=0, lt=1)
    layers: int = Field(default=4, ge=1)
    """Blocks of a gpt."""
    heads: int = Field(default=4, ge=1)
    """Attention heads of a gpt."""
    context: int = Field(default=128, ge=1)
    """Context length of a gpt, in tokens."""

    @model_validator(mode="after")
    def _heads_divide_the_width(self) -> ModelConfig:
        if self.name == "gpt" and self.hidden % self.heads:
            raise ValueError(
                f"model.heads: got {self.heads}; allowed: a divisor of model.hidden ({self.hidden})"
            )
        return self
