"""A training job: the `job` of a stack file, and the whole of a `job.yaml` (`trainyard run`)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

from pydantic import Field

from infra.spec.base import Name, NonNegative, Positive, Spec, matching
from infra.spec.fabric import NeededFabric
from infra.spec.grace import GraceSeconds
from infra.spec.images import PinnedImage

Setting = bool | int | float | str
"""A setting of the training package, which checks name and value itself when the job is submitted."""

LEAVE = "timeouts.leave"
"""The training package's setting for the seconds from a notice to the exit."""


Variable = Annotated[
    str,
    matching("variable", r"[A-Za-z_][A-Za-z0-9_]*", "letters, digits and '_', no digit first", "spell it so"),
]
_SecretKey = Annotated[
    str,
    matching("secret_key", r"[-._a-zA-Z0-9]{1,253}", "letters, digits, '-', '_' and '.'", "spell it so"),
]
_Secret = Annotated[
    str,
    matching(
        "secret_name",
        r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?",
        "the name of a Secret in the team's namespace: small letters, digits, '-' and '.'",
        "spell it as the Secret is called",
    ),
]
Word = Annotated[
    str, matching("word", r"(?s)[^\x00]+", "text that is not empty", "write it, or leave it out")
]
Port = Annotated[Positive, Field(le=65535)]
CodeDigest = Annotated[
    str,
    matching(
        "code",
        r"sha256:[0-9a-f]{64}",
        "the digest of a folder that `trainyard run` has stored: sha256:…",
        "`trainyard run` names it; leave it out to take the folder as it is",
    ),
]


class SecretSpec(Spec):
    """A part of a Secret that exists already, as a variable or as a file; its content is never here."""

    secret: _Secret = Field(description="name of the Secret, in the team's namespace")
    key: _SecretKey = Field(description="key of the Secret whose value is meant")
    variable: Variable | None = Field(default=None, description="variable that has the value")
    file: _SecretKey | None = Field(
        default=None, description="in place of a variable: name of a file below /var/run/secrets/trainyard"
    )


class InterruptionSpec(Spec):
    """A spot loss on purpose: what a cloud and its controllers do, done to one node of the job."""

    at_step: Positive = Field(description="optimizer step at which the notice comes, or the node dies")
    notice_seconds: Annotated[NonNegative, Field(le=600)] = Field(
        default=30, description="seconds between the notice and the node's end; 0: it is killed at once"
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
    """A TrainJob: on a runtime of the stack, or on the one that has what it needs.

    It runs a configuration of the training package (`config`), or a command of its own (`command`).
    """

    name: Name = Field(description="name of the TrainJob")
    team: Name = Field(description="name of the team that owns it")
    runtime: Name = Field(
        default="", description="name of a training runtime: torch-<fabric> or mpi-<fabric>"
    )
    needs: NeedsSpec | None = Field(default=None, description="in place of a runtime: what it needs")
    queue: Name | None = Field(
        default=None, description="one of the team's queues; default: its first, or where its needs are met"
    )
    num_nodes: Annotated[Positive, Field(le=5000)] = Field(default=1, description="nodes (pods) of the job")
    accelerators_per_node: Annotated[Positive, Field(le=16)] = Field(
        default=1, description="accelerators of each node"
    )
    processes_per_node: Annotated[Positive, Field(le=64)] | None = Field(
        default=None,
        description="ranks on each node; default: one per accelerator for a command that begins with python,"
        " else 1",
    )
    cpu: Annotated[Positive, Field(le=1024)] | None = Field(
        default=None, description="processors of each node; default: the accelerators' share of the machine"
    )
    memory_gib: Annotated[Positive, Field(le=65536)] | None = Field(
        default=None,
        description="memory of each node in GiB, its limit too; default: the share, without a limit",
    )
    shared_memory_gib: Annotated[Positive, Field(le=65536)] | None = Field(
        default=None, description="size of /dev/shm in GiB, a part of the memory; default: 64 MiB"
    )
    priority: Name = Field(default="normal", description="name of one of the stack's priorities")
    image: PinnedImage | None = Field(
        default=None, description="image that it runs in, by digest; default: the runtime's"
    )
    command: tuple[Word, ...] | None = Field(
        default=None, min_length=1, description="program and arguments, in place of a config"
    )
    code: CodeDigest | None = Field(
        default=None,
        description="digest of the folder of code that the command starts in; `trainyard run` stores it",
    )
    files: tuple[Word, ...] = Field(
        default=(),
        description="for `trainyard run`: files of the folder that go along though git does not track them,"
        " as names, folders or patterns",
    )
    environment: dict[Variable, str] = Field(default={}, description="variables; none of them secret")
    secrets: tuple[SecretSpec, ...] = Field(default=(), description="values from Secrets, by reference")
    datasets: tuple[Name, ...] = Field(
        default=(), description="datasets that its command reads, each by the path in TRAINYARD_DATASET_NAME"
    )
    ports: dict[Name, Port] = Field(
        default={}, description="ports that it serves on its first node, such as tensorboard: 6006"
    )
    time_limit_minutes: Annotated[Positive, Field(le=527040)] | None = Field(
        default=None, description="minutes from its start to its end, come what may; queueing does not count"
    )
    restarts: Annotated[NonNegative, Field(le=1000)] | None = Field(
        default=None,
        description="how often a node's ranks are started again in place after one has died; default: 3",
    )
    hold_on_failure_minutes: Annotated[Positive, Field(le=1440)] | None = Field(
        default=None, description="minutes that its pods stay after it has failed, for `trainyard shell`"
    )
    module: Annotated[str, Field(pattern=r"^[a-z_][\w.]*$")] = Field(
        default="training.train", description="Python module that each rank runs"
    )
    dataset: Name | None = Field(default=None, description="name of the dataset that it reads")
    config: Name | None = Field(
        default=None, description="name of a configuration in training/configs, in place of a command"
    )
    overrides: dict[str, Setting] = Field(default={}, description="settings that differ, dotted key to value")
    grace_seconds: GraceSeconds | None = Field(
        default=None,
        description="seconds from SIGTERM to its end, wherever it lands; default: all of its pods' grace",
    )
    interruptions: tuple[InterruptionSpec, ...] = Field(
        default=(), description="spot losses that `trainyard up` brings about, to show that the job survives"
    )

    @property
    def ranks_per_node(self) -> int:
        """How many ranks are started on each node."""
        if self.processes_per_node is not None:
            return self.processes_per_node
        return self.accelerators_per_node if starts_by_rank(self.command or ()) else 1


PYTHON = re.compile(r"python(3(\.\d+)?)?")


def starts_by_rank(command: Sequence[str]) -> bool:
    """Whether a command is a program of Python's, which starts once per accelerator; others once per node."""
    return bool(command) and PYTHON.fullmatch(command[0]) is not None
