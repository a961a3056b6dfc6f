"""Timeouts: `timeouts` in a run's configuration."""

from __future__ import annotations

from typing import Any

from pydantic import Field, model_validator

from trainyard_train.config_base import ConfigSection


class TimeoutConfig(ConfigSection):
    """How long to wait for others, in seconds."""

    rendezvous: float = Field(default=300, gt=0)
    """For all ranks to arrive."""
    rejoin: float = Field(default=3, gt=0)
    """For all ranks to arrive again, after they were started again in place; more only delays their start
    elsewhere, where a node is lost."""
    collective: float = Field(default=20, gt=0)
    """For one collective; longer than the slowest step."""
    silence: float = Field(default=8, ge=3)
    """Without a sign of life from a rank, until it counts as gone."""
    stall: float = Field(default=15, gt=0)
    """In one step, until all ranks write down what they are doing; shorter than `collective`. Left out, it is
    no more than three quarters of that."""
    store: float = Field(default=60, gt=0)
    """For one request to an object store, with its retries."""
    save: float = Field(default=600, gt=0)
    """For one checkpoint to become durable, until the run ends rather than wait for it."""
    leave: float = Field(default=10, gt=0)
    """From a notice to the exit, come what may."""

    @model_validator(mode="before")
    @classmethod
    def _stall_follows_collective(cls, values: Any) -> Any:  # noqa: ANN401 (whatever was given)
        """Who shortens `collective` alone has stacks written before it ends, too."""
        collective = values.get("collective") if isinstance(values, dict) else None
        if not isinstance(collective, int | float) or "stall" in values:
            return values
        shorter = 0.75 * collective
        return {**values, "stall": shorter} if 0 < shorter < cls.model_fields["stall"].default else values

    @model_validator(mode="after")
    def _stacks_come_before_the_end(self) -> TimeoutConfig:
        if self.stall >= self.collective:
            raise ValueError(
                f"timeouts.stall: got {self.stall:g}; allowed: less than timeouts.collective"
                f" ({self.collective:g}), after which the ranks leave; lower it, or raise timeouts.collective"
            )
        return self
