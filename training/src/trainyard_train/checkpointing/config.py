"""Settings of checkpoints: the section `checkpoint` of a run's configuration."""

from __future__ import annotations

import os
import re
from functools import partial
from typing import Final, Literal

from pydantic import Field, field_validator, model_validator

from trainyard_train.config_base import ConfigSection

FROM_SCRATCH: Final = "begin at step 0 if there are checkpoints and none can be used"
"""Help of the option."""
_AWS: Final = ".amazonaws.com"
"""In the host of S3 itself. The other S3 stores of Trainyard's targets have no rule for marked objects."""


def _is_set(variable: str) -> bool:
    return os.environ.get(variable, "") not in {"", "0"}


class KeepBest(ConfigSection):
    """Checkpoints that are kept because a metric was best there."""

    metric: str
    """Name of the metric, as of an evaluation."""
    n: int = Field(default=1, ge=1)
    """Number of checkpoints."""
    mode: Literal["max", "min"] | None = None
    """Whether the largest or smallest values are best; None: the smallest of a loss, else the largest."""

    def badness(self, value: float) -> float:
        """The smaller, the better."""
        mode = self.mode or ("min" if self.metric.endswith("loss") else "max")
        return value if mode == "min" else -value


class CheckpointConfig(ConfigSection):
    """When to save and how much to keep."""

    every_steps: int = Field(default=20, ge=0)
    """Steps between checkpoints; 0: the interval with the least lost time (see `checkpointing.interval`)."""
    mtbf_seconds: float = Field(default=86400, gt=0)
    """Expected mean time between failures of a run; used with `every_steps: 0` until some have happened."""
    keep_last: int = Field(default=3, ge=1)
    """Number of newest checkpoints that are retained."""
    keep_every: int = Field(default=0, ge=0)
    """Steps between checkpoints that are never deleted; 0: none."""
    keep_best: KeepBest | None = None
    """Checkpoints that are never deleted while a metric is best there; a step that becomes one is saved."""
    superseded: Literal["delete", "tag"] = "delete"
    """Treatment of checkpoints that are not retained. `tag`: objects in S3 and Azure get
    `trainyard.dev/superseded=true`, those in Google Cloud Storage a custom time, by which a
    rule of the bucket deletes them later."""
    memory_gib: float | None = Field(default=None, ge=0)
    """Maximum memory per node for the newest checkpoint, which the agent keeps for restarted ranks: two
    captures of each rank. Default: what is free; 0: none."""
    stop_after_failures: int = Field(default=0, ge=0)
    """Checkpoints in a row that may fail before the run ends with its own exit code; 0: any number."""
    stop_after_seconds: float = Field(default=0, ge=0)
    """Seconds without a durable checkpoint after which a failed one ends the run; 0: any."""
    skip_unreadable: bool = Field(default_factory=partial(_is_set, "TRAINYARD_SKIP_UNREADABLE"))
    """Whether to resume from an older checkpoint if the newest one cannot be read, which then remains."""
    from_scratch: bool = Field(default_factory=partial(_is_set, "TRAINYARD_FROM_SCRATCH"))
    """Whether to begin at step 0 if there are checkpoints and none can be used; one that can is resumed."""
    store: str = ""
    """URL of a folder in an object store, such as `s3://bucket/runs/7`; empty: `checkpoints` in run_dir."""

    pace_seconds: float = Field(default=0, ge=0, le=600)
    """Minimum seconds of a checkpoint, except for a run's last one; the run sleeps for the rest. Simulates
    the checkpoint of a large model, to test it against a preemption notice; 0 for real work."""

    @field_validator("store")
    @classmethod
    def _store_is_a_url(cls, url: str) -> str:
        if url and not re.fullmatch(r"[a-z][a-z0-9+]*://[^/]+(/.*)?", url):
            raise ValueError("allowed: a URL such as s3://bucket/runs/7; leave it out to use run_dir")
        return url

    @model_validator(mode="after")
    def _marks_are_of_clouds(self) -> CheckpointConfig:
        if self.superseded == "tag" and not self.store.startswith(("s3://", "gs://", "az://")):
            raise ValueError(
                "checkpoint.superseded: got 'tag'; allowed: with checkpoint.store in S3 (s3://…),"
                " Google Cloud Storage (gs://…) or Azure (az://…)"
            )
        endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL", _AWS)
        if self.superseded == "tag" and self.store.startswith("s3://") and _AWS not in endpoint:
            why = f"got 'tag', with the store at {endpoint}, where no rule deletes what is marked"
            raise ValueError(f"checkpoint.superseded: {why}; allowed: 'delete'")
        return self
