"""The stack's own training job: what `trainyard up` runs to show that the cluster trains."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from infra.spec.base import Name, NonNegative, Positive, Spec
from infra.spec.fabric import NeededFabric
from infra.spec.grace import GraceSeconds

Setting = bool | int | float | str
"""A setting of the training package, which checks name and value itself when the job is submitted."""

LEAVE = "timeouts.leave"
"""The training package's setting for the seconds from a notice to the exit."""


class InterruptionSpec(Spec):
    """A spot loss on purpose: what a cloud and its controllers do, done to one node of the job."""

    at_step: Positive = Field(description="optimizer step at which the notice comes, or the node dies")
    notice_seconds: Annotated[NonNegative, Field(le=600)] = Field(
        default=30, description="seconds between the notice and the node's end; 0: it dies with no word"
    )


class NeedsSpec(Spec):
    """What a job needs of the machines; the stack says where that is."""

    accelerator: Name | None = Field(default=None, description="model of the accelerators, such as h200")
    memory_gib: Positive | None = Field(default=None, description="memory of one accelerator in GiB, or more")
    fabric: NeededFabric | None = Field(
        default=None, description="fabric class; any: one that is not plain TCP"
    )
    framework: Literal["torch", "mpi"] = Field(default="torch", description="how its ranks are started")


class JobSpec(Spec):
    """A TrainJob: on a runtime of the stack, or on the one that has what it needs."""

    name: Name = Field(description="name of the TrainJob")
    team: Name = Field(description="name of the team that owns it")
    runtime: Name = Field(
        default="", description="name of a training runtime: torch-<fabric> or mpi-<fabric>"
    )
    needs: NeedsSpec | None = Field(default=None, description="in place of a runtime: what it needs")
    queue: Name | None = Field(
        default=None, description="one of the team's queues; left out: its first, or where its needs are met"
    )
    num_nodes: Annotated[Positive, Field(le=5000)] = Field(description="nodes (pods) of the job")
    accelerators_per_node: Annotated[Positive, Field(le=16)] = Field(
        default=1, description="accelerators of each node"
    )
    processes_per_node: Annotated[Positive, Field(le=64)] = Field(default=1, description="ranks on each node")
    priority: Name = Field(default="normal", description="name of one of the stack's priorities")
    module: Annotated[str, Field(pattern=r"^[a-z_][\w.]*$")] = Field(
        default="training.train", description="Python module that each rank runs"
    )
    dataset: Name | None = Field(default=None, description="name of the dataset that it reads")
    config: Name = Field(description="name of a configuration in training/configs")
    overrides: dict[str, Setting] = Field(default={}, description="settings that differ, dotted key to value")
    grace_seconds: GraceSeconds | None = Field(
        default=None,
        description="seconds from SIGTERM to its end, wherever it lands; left out: all of its pods' grace",
    )
    interruptions: tuple[InterruptionSpec, ...] = Field(
        default=(), description="spot losses that `trainyard up` brings about, to show that the job survives"
    )
