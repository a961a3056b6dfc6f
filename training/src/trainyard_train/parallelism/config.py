"""The section `parallel` of a run's configuration."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, model_validator

from trainyard_train.config_base import ConfigError, ConfigSection

Strategy = Literal["ddp", "fsdp"]
Precision = Literal["float32", "bfloat16", "float16"]
Backend = Literal["auto", "nccl", "gloo"]


class ParallelConfig(ConfigSection):
    """How the ranks are arranged, and how many they may be."""

    shard: int = Field(default=0, ge=0)
    """Ranks that share one copy of the weights with fsdp; the groups are replicas (HSDP). 0: all."""
    min_ranks: int = Field(default=1, ge=1)
    """Minimum number of ranks with which a run begins or continues."""
    max_ranks: int = Field(default=0, ge=0)
    """Maximum number of ranks; 0: any number."""

    @model_validator(mode="after")
    def _bounds_are_in_order(self) -> ParallelConfig:
        if 0 < self.max_ranks < self.min_ranks:
            raise ValueError(
                f"parallel.max_ranks: got {self.max_ranks};"
                f" allowed: parallel.min_ranks ({self.min_ranks}) or more, or 0"
            )
        return self

    def check(self, ranks: int) -> None:
        """Check that the number of ranks is within the limits.

        Raises:
            ConfigError: there are too few or too many.
        """
        if ranks < self.min_ranks or 0 < self.max_ranks < ranks:
            most = f"to {self.max_ranks}" if self.max_ranks else "or more"
            problem = (
                f"parallel: got {ranks} ranks; allowed: {self.min_ranks} {most}; start so many,"
                " or change parallel.min_ranks and .max_ranks; saved checkpoints remain"
            )
            raise ConfigError([problem])
