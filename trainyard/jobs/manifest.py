"""Renders parts of a TrainJob manifest: command, environment, resources, volumes, origin of code and data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

from infra.common import names
from infra.platform.programs import on_fabric, program, unpacking
from infra.stackfile.job import JobSpec, starts_by_rank
from infra.stackfile.share import quantity
from trainyard_train.contract import exit_seconds

ORIGIN, PORTS = "trainyard.dev/origin", "trainyard.dev/ports"
"""Annotations of a TrainJob: its origin (see `Origin`), and its ports as `name=number,…`."""
SECRET_FILES = "/var/run/secrets/trainyard"  # noqa: S105 -- a folder
PYTHON_PATH = "PYTHONPATH"
"""Variable that images have too: `python_path.sh` joins the values."""
RESTARTS = 3
"""Default number of restarts of a node's ranks in the same pod."""
_LAUNCHERS = frozenset({"accelerate", "deepspeed"})
_SHARED_MEMORY = {"name": "shared-memory", "mountPath": "/dev/shm"}  # noqa: S108 -- where PyTorch and NCCL look
_READABLE = 0o440


class JobDataset(Protocol):
    """A dataset that a job reads."""

    @property
    def name(self) -> str:
        """Name of the dataset in the stack."""

    @property
    def path(self) -> str:
        """Seen from the folder of datasets."""

    @property
    def digest(self) -> str:
        """Digest of its contents."""


@dataclass(frozen=True)
class Origin:
    """Everything that a job's result depends on, apart from the nodes and the image's content."""

    image: str
    command: Sequence[str]
    datasets: Mapping[str, str]
    """Name of each dataset → its digest."""
    code: str = ""
    """Digest of the code's folder; empty if the job brings none."""
    commit: str = ""
    """Commit that was checked out in the folder; empty if unknown."""
    dirty: bool = False
    """Whether files in the folder differ from the commit."""

    def as_text(self) -> str:
        """Return it as one line of JSON."""
        return json.dumps(
            {
                "image": self.image,
                "command": list(self.command),
                "datasets": dict(self.datasets),
                **({"code": self.code} if self.code else {}),
                **({"commit": self.commit, "dirty": self.dirty} if self.commit else {}),
            },
            separators=(",", ":"),
        )


def is_mpi(job: JobSpec) -> bool:
    """Whether one mpirun starts all ranks of the job."""
    return job.runtime.startswith("mpi-")


def replicated_jobs(job: JobSpec) -> list[str]:
    """Name the parts of its JobSet whose pods have ranks."""
    return ["node", "launcher"] if is_mpi(job) else ["node"]


def command_of(job: JobSpec) -> list[str]:
    """Return the container's command: it unpacks the code, then sets up the fabric and starts the ranks."""
    return [*(unpacking() if job.code else []), *around(job), *_ranks(job)]


def around(job: JobSpec) -> list[str]:
    """Return the wrapper of a command: what holds a failed pod, the Python path, the fabric's settings."""
    settings = on_fabric(job.runtime.partition("-")[2])
    if PYTHON_PATH in job.environment:
        settings = ["/bin/sh", "-c", program("python_path.sh").rstrip(), "python_path", *settings]
    if (minutes := job.hold_on_failure_minutes) is None:
        return settings
    return ["/bin/sh", "-c", program("hold_failed.sh").rstrip(), "hold_failed", f"{minutes * 60}", *settings]


def _ranks(job: JobSpec) -> list[str]:
    """Command that starts the ranks: one per accelerator for a Python program, else one per node, unless the
    job sets it.

    Our agent starts ranks where the image has it, else torchrun, which comes with PyTorch; both read
    Trainer's variables.
    """
    command = list(job.command or ())
    by_rank = starts_by_rank(command)
    if not by_rank and job.processes_per_node is None:
        return [*_joining(job), *command]
    if is_mpi(job):
        given = [name for name in variables(job) for name in ("-x", name)]
        return ["mpirun", "-n", str(job.num_nodes * job.ranks_per_node), *given, *command]
    restarts = f"{RESTARTS if job.restarts is None else job.restarts}"
    if not by_rank:
        torchrun = ["-m", "torch.distributed.run", f"--max-restarts={restarts}", "--no-python"]
        return ["python3", *torchrun, *command]
    words = [word for index, word in enumerate(command) if not (word == "-u" and index == 1)]
    return ["/bin/sh", "-c", program("start_ranks.sh").rstrip(), "start_ranks", restarts, *words]


def _joining(job: JobSpec) -> list[str]:
    """Return the wrapper of a launcher that does not read torchrun's variables: its nodes must join."""
    is_alone = job.num_nodes == 1 or PurePosixPath((job.command or ("",))[0]).name not in _LAUNCHERS
    return [] if is_alone else ["/bin/sh", "-c", program("join_nodes.sh").rstrip(), "join_nodes"]


def variables(job: JobSpec) -> list[str]:
    """Name the variables that the job itself has."""
    return [*job.environment, *(each.variable for each in job.secrets if each.variable)]


def environment(
    job: JobSpec, run_dir: str, origin: Origin, datasets: Sequence[JobDataset] = ()
) -> list[dict[str, Any]]:
    """Return the variables of each node: its accelerators, the job's own, secrets by reference, paths."""
    paths = {each.name: f"{names.DATASETS_MOUNT}/{each.path}" for each in datasets}
    own = {
        f"TRAINYARD_{name}" if name == PYTHON_PATH else name: job.environment[name]
        for name in job.environment
    }
    values = {
        names.ACCELERATORS_VARIABLE: str(job.accelerators_per_node),
        **own,
        "TRAINYARD_JOB": job.name,
        "TRAINYARD_RUN_DIR": run_dir,
        "TRAINYARD_ORIGIN": origin.as_text(),
        **({names.CODE_VARIABLE: job.code} if job.code else {}),
        **{f"TRAINYARD_DATASET_{_upper(name)}": paths[name] for name in job.datasets if name in paths},
        **{f"TRAINYARD_PORT_{_upper(name)}": str(port) for name, port in job.ports.items()},
        **_grace(job),
    }
    by_reference = [
        {
            "name": each.variable,
            "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}},
        }
        for each in job.secrets
        if each.variable
    ]
    return [{"name": name, "value": value} for name, value in values.items()] + by_reference


def _upper(name: str) -> str:
    return name.upper().replace("-", "_")


def _grace(job: JobSpec) -> dict[str, str]:
    """Variables for training package and torchrun to exit before the pods' grace period ends."""
    if job.grace_seconds is None:
        return {}
    timeout = int(exit_seconds(job.grace_seconds))
    return {
        "TRAINYARD_GRACE_SECONDS": str(job.grace_seconds),
        "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(timeout),
    }


def resources(job: JobSpec, share: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what each node asks for of processors and memory, and its limits.

    Memory that the job names is its limit too: what takes more would take it from others.
    """
    asked = dict(share)
    if job.cpu is not None:
        asked["cpu"] = str(job.cpu)
    if job.memory_gib is not None:
        asked["memory"] = quantity(job.memory_gib * 1024)
    return asked, {"memory": asked["memory"]} if job.memory_gib is not None else {}


def patch(job: JobSpec) -> dict[str, Any] | None:
    """Return the overrides of the runtime's pods: volumes for files of Secrets and shared memory."""
    volumes: list[dict[str, Any]] = []
    mounts: list[dict[str, Any]] = []
    if job.shared_memory_gib is not None:
        size = {"medium": "Memory", "sizeLimit": quantity(job.shared_memory_gib * 1024)}
        volumes.append({"name": _SHARED_MEMORY["name"], "emptyDir": size})
        mounts.append(dict(_SHARED_MEMORY))
    if files := [each for each in job.secrets if each.file]:
        sources = [
            {"secret": {"name": each.secret, "items": [{"key": each.key, "path": each.file}]}}
            for each in files
        ]
        volumes.append({"name": "secret-files", "projected": {"sources": sources, "defaultMode": _READABLE}})
        mounts.append({"name": "secret-files", "mountPath": SECRET_FILES, "readOnly": True})
    if not volumes:
        return None
    pod = {"volumes": volumes, "containers": [{"name": "node", "volumeMounts": mounts}]}
    return laid_over("trainyard.dev/job", job, pod)


def laid_over(manager: str, job: JobSpec, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime patch of all pods that have ranks; `manager` is whose it is."""
    jobs = [
        {"name": name, "template": {"spec": {"template": {"spec": dict(pod)}}}}
        for name in replicated_jobs(job)
    ]
    return {
        "manager": manager,
        "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}},
    }
