"""Timeouts of an elastic run: the section `timeouts` of its configuration, and the seconds from a preemption
notice to the exit.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, Final

from pydantic import Field, model_validator

from trainyard_train.config_base import ConfigError, ConfigSection
from trainyard_train.contract import exit_seconds

GRACE_VARIABLE: Final = "TRAINYARD_GRACE_SECONDS"
"""Variable with the seconds from SIGTERM to SIGKILL of this pod."""
NOTICE_VARIABLE: Final = "TRAINYARD_NOTICE_SECONDS"
"""Variable with the shortest preemption notice, in seconds, of the spot nodes that this pod may run on."""
_DEFAULT_SECONDS: Final = 10.0
"""Seconds from a preemption notice to the exit, where neither the pod nor a cloud sets a limit."""


def read_seconds(name: str, environment: Mapping[str, str] = os.environ) -> float | None:
    """The seconds in a variable of the pod; None where it is not set.

    Raises:
        ConfigError: the value is not a whole number above 0.
    """
    text = environment.get(name)
    if not text:  # the pod lacks the annotation
        return None
    if not text.isdecimal() or not int(text):
        raise ConfigError([f"{name}: got {text!r}; allowed: a whole number of seconds above 0, or unset"])
    return float(text)


class TimeoutConfig(ConfigSection):
    """How long to wait for others, in seconds."""

    rendezvous: float = Field(default=300, gt=0)
    """Time for all ranks to arrive."""
    rejoin: float = Field(default=3, gt=0)
    """Time for all ranks to arrive again, after they were restarted in place; more only delays their start
    elsewhere, where a node has failed."""
    collective: float = Field(default=20, gt=0)
    """Time for one collective; longer than the slowest step. The limit of a step is the larger of this and
    ten times the longest step so far; the limit of the first step is the larger of this and `start`."""
    silence: float = Field(default=8, ge=3)
    """Time without a heartbeat of a node's agent, or of a rank that has none, until it counts as failed; a
    rank may be stopped (SIGSTOP) for as long."""
    stall: float = Field(default=15, gt=0)
    """Time in one step until all ranks write their stacks; shorter than `collective`. Default:
    at most three quarters of `collective`."""
    store: float = Field(default=60, gt=0)
    """Time for one request to an object store, with its retries."""
    save: float = Field(default=600, gt=0)
    """Time for one checkpoint to become durable; the run ends rather than wait longer."""
    leave: float | None = Field(default=None, gt=0)
    """Maximum time from a preemption notice to the exit. Default: what the pod's grace period allows."""

    @model_validator(mode="before")
    @classmethod
    def _stall_follows_collective(cls, values: Any) -> Any:  # noqa: ANN401 (whatever was given)
        """If only `collective` is set, `stall` is at most 75 % of it: stacks are dumped first."""
        collective = values.get("collective") if isinstance(values, dict) else None
        if not isinstance(collective, int | float) or "stall" in values:
            return values
        shorter = 0.75 * collective
        return {**values, "stall": shorter} if 0 < shorter < cls.model_fields["stall"].default else values

    @property
    def start(self) -> float:
        """Seconds that a rank may take until its first step is done: to build, load and compile."""
        return max(self.save, self.rendezvous)

    @property
    def watchdog(self) -> float:
        """Seconds after which a process group gives a collective up, counted from its enqueueing.

        It is the last resort, since NCCL's watchdog ends the process by SIGABRT: a collective may wait for a
        rank that takes its time to start. `elasticity.heartbeats` ends a step that hangs long before that.
        """
        return self.start + self.collective

    def until_exit(self, notices: str = "none", environment: Mapping[str, str] = os.environ) -> float:
        """Seconds from a preemption notice to the exit: `leave`, or what the pod's grace allows.

        Outside of a pod it is what the cloud's notice allows, else 10.

        Args:
            notices: cloud whose metadata service is polled for a notice, as in the run's configuration.
            environment: variables of this process.

        Raises:
            ConfigError: `leave` is longer than the pod's grace allows, or the cloud has no such service.
        """
        grace = read_seconds(GRACE_VARIABLE, environment)
        if grace is None:
            if self.leave or notices == "none":
                return self.leave or _DEFAULT_SECONDS
            from trainyard_train.elasticity.instance_metadata import POLL_SECONDS, metadata_of

            # The notice can be a polling interval old.
            return exit_seconds(metadata_of(notices, environment).notice_seconds - POLL_SECONDS)
        longest = exit_seconds(grace)
        if self.leave is not None and self.leave > longest:
            problem = (
                f"timeouts.leave: got {self.leave:g}; allowed: at most {longest:g}, since this pod is killed"
                f" {grace:g} s after SIGTERM; lower it, or raise the runtime's grace_seconds (stack file)"
            )
            raise ConfigError([problem])
        return self.leave or longest

    @model_validator(mode="after")
    def _stall_is_shorter_than_collective(self) -> TimeoutConfig:
        if self.stall >= self.collective:
            raise ValueError(
                f"timeouts.stall: got {self.stall:g}; allowed: less than timeouts.collective"
                f" ({self.collective:g}), after which the ranks exit; lower it, or raise timeouts.collective"
            )
        return self
