"""The model of a training job: the `job` section of a stack file, or a whole `job.yaml`."""

import re
from collections.abc import Iterator, Sequence
from typing import Annotated, Literal

from pydantic import Field

from infra.stackfile.base import Gibibytes, Name, NonNegative, Positive, Quantity, Spec, matching
from infra.stackfile.fabric import NeededFabric
from infra.stackfile.grace import GraceSeconds
from infra.stackfile.images import PinnedImage

EXIT_TIMEOUT = "timeouts.leave"
"""Name of the training package's setting for the seconds from a preemption notice to the exit."""


Variable = Annotated[
    str,
    matching(
        "variable",
        r"[A-Za-z_][A-Za-z0-9_]*",
        "letters, digits and '_', no digit first",
        "use only these characters",
    ),
]
_SecretKey = Annotated[
    str,
    matching(
        "secret_key",
        r"[-._a-zA-Z0-9]{1,253}",
        "letters, digits, '-', '_' and '.'",
        "use only these characters",
    ),
]
_Secret = Annotated[
    str,
    matching(
        "secret_name",
        r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?",
        "the name of a Secret in the team's namespace: lower-case letters, digits, '-' and '.'",
        "write the name of the Secret",
    ),
]
Word = Annotated[
    str, matching("word", r"(?s)[^\x00]+", "text that is not empty", "write it, or leave it out")
]
Port = Annotated[Positive, Field(le=65535)]
PackDigest = Annotated[
    str,
    matching(
        "code",
        r"sha256:[0-9a-f]{64}",
        "the digest of a folder that `trainyard run` has stored: sha256:…",
        "`trainyard run` prints it; omit it to send the folder as it is",
    ),
]


class SecretSpec(Spec):
    """A key of an existing Secret, as an environment variable or a file.

    The stack file never has its value.
    """

    secret: _Secret = Field(description="name of the Secret, in the team's namespace")
    key: _SecretKey = Field(description="key of the Secret")
    variable: Variable | None = Field(
        default=None, description="environment variable that is set to the value"
    )
    file: _SecretKey | None = Field(
        default=None, description="in place of `variable`: name of the file under /var/run/secrets/trainyard"
    )


class InterruptionSpec(Spec):
    """A simulated spot preemption of one of the job's nodes."""

    at_step: Positive = Field(description="optimizer step at which the preemption starts")
    notice_seconds: Annotated[int, Quantity("s", 0, 600)] = Field(
        default=30,
        alias="notice",
        json_schema_extra={"default": "30s"},
        description="time from the notice to the node's termination; 0s: the node is killed without a notice",
    )


class NeedsSpec(Spec):
    """Requirements of a job, from which its queue, pool and runtime are selected."""

    accelerator: Name | None = Field(
        default=None, description="model of the accelerator, such as h200; default: any"
    )
    memory_gib: Gibibytes | None = Field(
        default=None, alias="memory", description="minimum memory of each accelerator"
    )
    fabric: NeededFabric | None = Field(
        default=None, description="fabric class; `rdma`: any class but plain TCP"
    )
    framework: Literal["torch", "mpi"] = Field(
        default="torch", description="launcher of the ranks: torchrun or MPI"
    )


class JobSpec(Spec):
    """A TrainJob on a training runtime of the stack.

    It runs a program of its own (`command`), or the training package's (`args`).
    """

    name: Name = Field(description="name of the TrainJob")
    team: Name = Field(description="team that the job belongs to")
    runtime: Name = Field(default="", description="training runtime: `torch-<fabric>` or `mpi-<fabric>`")
    needs: NeedsSpec | None = Field(
        default=None, description="in place of `runtime`: requirements from which it is selected"
    )
    queue: Name | None = Field(
        default=None,
        description="one of the team's queues; default: the team's `queue`, or one that satisfies `needs`",
    )
    num_nodes: Annotated[Positive, Field(le=5000)] = Field(
        default=1, alias="nodes", description="number of nodes, with one pod each"
    )
    accelerators_per_node: Annotated[Positive, Field(le=16)] = Field(
        default=1, alias="gpus", description="number of accelerators on each node"
    )
    processes_per_node: Annotated[Positive, Field(le=64)] | None = Field(
        default=None,
        alias="ranks_per_node",
        description="number of ranks on each node; default: one per accelerator for a command that begins"
        " with python, else 1",
    )
    cpu: Annotated[Positive, Field(le=1024)] | None = Field(
        default=None,
        description="CPU request on each node; default: the requested accelerators' share of the node",
    )
    memory_gib: Annotated[int, Quantity("Gi", 1, 65536)] | None = Field(
        default=None,
        alias="memory",
        description="memory request and limit on each node; default: the requested accelerators'"
        " share of the node, without a limit",
    )
    shared_memory_gib: Annotated[int, Quantity("Gi", 1, 65536)] | None = Field(
        default=None,
        alias="shared_memory",
        description="size of /dev/shm, which counts as memory of the pod; default: 64Mi",
    )
    priority: Name = Field(default="normal", description="one of the stack's priorities")
    image: PinnedImage | None = Field(
        default=None, description="image that the job runs in, by digest; default: the runtime's image"
    )
    command: tuple[Word, ...] | None = Field(
        default=None, min_length=1, description="program and arguments that each rank or node runs"
    )
    args: tuple[Word, ...] | None = Field(
        default=None,
        min_length=1,
        description="in place of `command`: arguments of the training package's program, which the runtime's"
        " image has, such as [--config, digits, --set, steps=300]",
    )
    code: PackDigest | None = Field(
        default=None,
        description="digest of the code folder that the command starts in, as stored by `trainyard run`",
    )
    files: tuple[Word, ...] = Field(
        default=(),
        description="for `trainyard run`: files of the code folder to include though git does not track"
        " them, as names, folders or patterns",
    )
    requirements: tuple[Word, ...] = Field(
        default=(),
        alias="with",
        description="for `trainyard run`: packages that the command needs beyond the image, by"
        " requirements.txt, uv.lock, pylock.toml or folders of wheels",
    )
    packages: PackDigest | None = Field(
        default=None, description="digest of such packages, as stored by `trainyard run`"
    )
    environment: dict[Variable, str] = Field(
        default={}, alias="env", description="environment variables; never secrets"
    )
    secrets: tuple[SecretSpec, ...] = Field(default=(), description="keys of existing Secrets")
    datasets: tuple[Name, ...] = Field(
        default=(),
        description="datasets that the job reads; the path of each is in the variable"
        " `TRAINYARD_DATASET_<NAME>`; with `args` one at most, which becomes the setting `data.path`",
    )
    ports: dict[Name, Port] = Field(
        default={}, description="TCP ports that the first node serves, by name, such as tensorboard: 6006"
    )
    time_limit_minutes: Annotated[int, Quantity("m", 1, 527040)] | None = Field(
        default=None,
        alias="time_limit",
        description="maximum run time, without time in the queue; default: no limit",
    )
    restarts: Annotated[NonNegative, Field(le=1000)] | None = Field(
        default=None,
        description="maximum number of in-place restarts of a node's ranks after one fails; default: 3",
    )
    hold_on_failure_minutes: Annotated[int, Quantity("m", 1, 1440)] | None = Field(
        default=None,
        alias="hold_on_failure",
        description="time that the pods of a failed job are retained for `trainyard shell`; default: none",
    )
    grace_seconds: GraceSeconds | None = Field(
        default=None,
        alias="grace",
        description="time after SIGTERM in which the job must exit; default: the grace period of its pods",
    )
    interruptions: tuple[InterruptionSpec, ...] = Field(
        default=(), description="spot preemptions that `run` and `up --job` simulate on the embedded cluster"
    )

    @property
    def ranks_per_node(self) -> int:
        """Number of ranks that are started on each node."""
        if self.processes_per_node is not None:
            return self.processes_per_node
        return self.accelerators_per_node if starts_by_rank(self.command or ()) else 1


SBATCH = "sbatch"
"""First word of a command that is a batch script of Slurm, which runs on the job's first node."""
SRUN_PORT = 29502
"""Port of the first node by which `srun` reaches the others."""
PYTHON = re.compile(r"python(3(\.\d+)?)?")


def starts_by_rank(command: Sequence[str]) -> bool:
    """Whether a command is a program of Python's, which starts once per accelerator; others once per node."""
    return bool(command) and PYTHON.fullmatch(command[0]) is not None


def settings_in(args: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield the settings among arguments of the training package's program: position, dotted key, value."""
    for index, word in enumerate(args):
        setting = word.removeprefix("--set=") if word.startswith("--set=") else ""
        if index and args[index - 1] == "--set":
            setting = word
        key, _, value = setting.partition("=")
        if key:
            yield index, key, value
