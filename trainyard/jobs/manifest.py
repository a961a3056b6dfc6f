"""Renders a TrainJob: metadata, command, environment, resources, volumes, origin of code and data."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Protocol

import catalog
from catalog import fabric_lint
from infra.common import names
from infra.platform.programs import on_fabric, program, unpacking
from infra.stackfile.dataset import DATA_PATH
from infra.stackfile.job import EXIT_TIMEOUT, SBATCH, SRUN_PORT, JobSpec, starts_by_rank
from infra.stackfile.share import Share, canonical, quantity
from trainyard.jobs.key import JOB, ORIGIN, PORTS, QUEUE, RUN, SPEC, TRAIN_JOBS, JobKey
from trainyard.jobs.placement import JobPlacement
from trainyard_train.contract import exit_seconds

CHECKPOINTS = "/mnt/checkpoints"
"""Mount path of the team's checkpoint volume in every training runtime."""
SOURCES = "/opt/trainyard/src"
"""Path of the training package in the training image."""
SECRET_FILES = "/var/run/secrets/trainyard"  # noqa: S105 -- a folder
PYTHON_PATH = "PYTHONPATH"
"""Variable that images have too: `python_path.sh` joins the values."""
RESTARTS = 3
"""Default number of restarts of a node's ranks in the same pod."""
_LAUNCHERS = frozenset({"accelerate", "deepspeed"})
_PYTHON = 'command -v "$0" >/dev/null || exec python3 "$@"; exec "$0" "$@"'
"""Shell program that starts Python by the given name, or as python3 where an image has no such name."""
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
    packages: str = ""
    """Digest of the packages beyond the image; empty if the job brings none."""
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
                **({"packages": self.packages} if self.packages else {}),
                **({"commit": self.commit, "dirty": self.dirty} if self.commit else {}),
            },
            separators=(",", ":"),
        )


@dataclass(frozen=True)
class Checkout:
    """Record of a job's origin, besides its manifest."""

    image: str = ""
    """Image of the job's runtime."""
    commit: str = ""
    """Commit that is checked out in the job's folder."""
    dirty: bool = False
    """Whether files in the folder differ from the commit."""


def manifest(
    job: JobSpec,
    run: str,
    datasets: Sequence[JobDataset] = (),
    placement: JobPlacement | None = None,
    *,
    checkout: Checkout | None = None,
) -> dict[str, Any]:
    """Render the TrainJob; `run` names the folder of this run on the checkpoint volume.

    Args:
        job: the job, with the name of its runtime.
        run: name of this run's folder.
        datasets: datasets of the stack, those that the job reads among them.
        placement: placement of the job; None: on any pool of the team's first queue.
        checkout: origin of the job's code and image, as far as it is known.
    """
    placement = placement or JobPlacement(job.team)
    asked = job.model_dump_json(exclude={"interruptions"}, exclude_defaults=True)
    read = [each for each in datasets if each.name in job.datasets]
    run_dir = f"{CHECKPOINTS}/{job.name}/{run}"
    ours = _program(job, run_dir, datasets) if job.command is None else {}
    hashes = {each.name: each.digest for each in read}
    words = job.command or (*ours["command"], *ours["args"])
    found = checkout or Checkout()
    image = job.image or found.image
    origin = Origin(image, words, hashes, job.code or "", job.packages or "", found.commit, dirty=found.dirty)
    variables = environment(job, run_dir, origin, datasets)
    ports = {PORTS: ",".join(f"{name}={port}" for name, port in job.ports.items())} if job.ports else {}
    spec = hashlib.sha256((asked + "".join(hashes.values())).encode()).hexdigest()[:12]
    labels = {QUEUE: placement.local_queue, "kueue.x-k8s.io/priority-class": job.priority}
    limit = {"activeDeadlineSeconds": job.time_limit_minutes * 60} if job.time_limit_minutes else {}
    patches = [*([_only_on(placement.pools, job)] if placement.pools else []), *filter(None, [_patch(job)])]
    return {
        "apiVersion": "/".join(TRAIN_JOBS[:2]),
        "kind": "TrainJob",
        "metadata": {
            "name": job.name,
            "namespace": JobKey(job.team, job.name).namespace,
            "labels": labels,
            "annotations": {RUN: run, SPEC: spec, JOB: asked, ORIGIN: origin.as_text(), **ports},
        },
        "spec": {
            "runtimeRef": {"name": job.runtime},
            **limit,
            **({"runtimePatches": patches} if patches else {}),
            "trainer": {
                "numNodes": job.num_nodes,
                "numProcPerNode": _ranks_of_torchrun(job),
                **({"image": job.image} if job.image else {}),
                **(ours or {"command": _own_command(job, [each["name"] for each in variables])}),
                "env": variables,
                "resourcesPerNode": _resources(job, placement.share),
            },
        },
    }


def _ranks_of_torchrun(job: JobSpec) -> int:
    """Number of ranks on each node, those of the job's own torchrun included."""
    started_by_itself = job.command is not None and job.processes_per_node is None
    return job.accelerators_per_node if started_by_itself else job.ranks_per_node


def _own_command(job: JobSpec, variables: Sequence[str]) -> list[str]:
    """Return what starts the job's own command in a container that has these variables."""
    return [*(unpacking() if job.code else []), *_around(job), *_ranks(job, variables)]


def _program(job: JobSpec, run_dir: str, datasets: Sequence[JobDataset]) -> dict[str, list[str]]:
    """Return command and arguments of the training package's program."""
    timeout = {EXIT_TIMEOUT: f"{exit_seconds(job.grace_seconds):g}"} if job.grace_seconds else {}
    restarts = {"restarts": job.restarts} if job.restarts is not None else {}
    settings = {**data_settings(job, datasets), **timeout, **restarts, "run_dir": run_dir}
    args = [*(job.args or ()), *(f"--set={key}={value}" for key, value in settings.items())]
    mpirun = ["mpirun", "-n", str(job.num_nodes * job.ranks_per_node)] if _is_mpi(job) else []
    return {"command": [*_around(job), *mpirun, "python3", "-m", "trainyard_train.train"], "args": args}


def _resources(job: JobSpec, share: Share) -> dict[str, Any]:
    """Resources of a node and its fabric: Trainer merges them with the runtime's, Kueue counts only these.

    Memory that the job names is its limit too: what takes more would take it from others.
    """
    fabric = catalog.fabric(job.runtime.partition("-")[2])
    devices = {fabric.accelerator_resource: str(job.accelerators_per_node)} | {
        name: canonical(str(amount)) for name, amount in fabric.pod_resources.items()
    }
    cpu = {"cpu": str(job.cpu)} if job.cpu is not None else {}
    memory = {"memory": quantity(job.memory_gib * 1024)} if job.memory_gib is not None else {}
    requests = {**share.requests(job.accelerators_per_node), **cpu, **memory, **devices}
    asked_for = [{"name": name} for name in fabric_lint.claims(fabric.name)]
    claims = {"claims": asked_for} if asked_for else {}
    return {"requests": requests, "limits": {**memory, **devices}, **claims}


def data_settings(job: JobSpec, datasets: Sequence[JobDataset]) -> dict[str, str]:
    """Return the setting of the training package's program for the path of the job's dataset, if any."""
    paths = [each.path for each in datasets if each.name in job.datasets]
    return {DATA_PATH: f"{names.DATASETS_MOUNT}/{paths[0]}"} if paths else {}


def _only_on(pools: Sequence[str], job: JobSpec) -> dict[str, Any]:
    """Keep all pods of the job to some pools; Kueue passes over the flavors that these rule out."""
    match = {"key": names.POOL_LABEL, "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return _laid_over("trainyard.dev/placement", job, {"affinity": affinity})


def _is_mpi(job: JobSpec) -> bool:
    """Whether one mpirun starts all ranks of the job."""
    return job.runtime.startswith("mpi-")


def _replicated_jobs(job: JobSpec) -> list[str]:
    """Name the parts of its JobSet whose pods have ranks."""
    return ["node", "launcher"] if _is_mpi(job) else ["node"]


def _around(job: JobSpec) -> list[str]:
    """Return the wrapper of a command: what holds a failed pod, the Python path, the fabric's settings."""
    settings = on_fabric(job.runtime.partition("-")[2])
    if PYTHON_PATH in job.environment or job.packages:
        settings = ["/bin/sh", "-c", program("python_path.sh").rstrip(), "python_path", *settings]
    if (minutes := job.hold_on_failure_minutes) is None:
        return settings
    return ["/bin/sh", "-c", program("hold_failed.sh").rstrip(), "hold_failed", f"{minutes * 60}", *settings]


def _ranks(job: JobSpec, variables: Sequence[str]) -> list[str]:
    """Command that starts the ranks: one per accelerator for a Python program, else one per node, unless the
    job sets it.

    Our agent starts ranks where the image has it, else torchrun, which comes with PyTorch; both read
    Trainer's variables.
    """
    command = list(job.command or ())
    by_rank = starts_by_rank(command)
    if command[:1] == [SBATCH]:
        return ["python3", "-c", program("run_sbatch.py", port=f"{SRUN_PORT}").rstrip(), *command[1:]]
    if not by_rank and job.processes_per_node is None:
        return [*_joining(job), *command]
    if _is_mpi(job):
        # Ranks of other nodes come by SSH, whose sessions have none of the pod's variables.
        owns = (PYTHON_PATH if name == f"TRAINYARD_{PYTHON_PATH}" else name for name in variables)
        given = [word for name in owns for word in ("-x", name)]
        found = ["/bin/sh", "-c", _PYTHON] if by_rank else []
        return ["mpirun", "-n", str(job.num_nodes * job.ranks_per_node), *given, *found, *command]
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


def environment(
    job: JobSpec, run_dir: str, origin: Origin, datasets: Sequence[JobDataset] = ()
) -> list[dict[str, Any]]:
    """Return the variables of each node: its accelerators, the job's own, secrets by reference, paths."""
    paths = {each.name: f"{names.DATASETS_MOUNT}/{each.path}" for each in datasets}
    own = {name: value for name, value in job.environment.items() if name != PYTHON_PATH}
    packages = f"{names.PACKAGE_STORE}/{job.packages.removeprefix('sha256:')}" if job.packages else ""
    if path := ":".join(filter(None, (job.environment.get(PYTHON_PATH), packages))):
        own[f"TRAINYARD_{PYTHON_PATH}"] = path
    values = {
        names.ACCELERATORS_VARIABLE: str(job.accelerators_per_node),
        **own,
        "TRAINYARD_JOB": job.name,
        "TRAINYARD_RUN_DIR": run_dir,
        "TRAINYARD_ORIGIN": origin.as_text(),
        **({names.CODE_VARIABLE: job.code} if job.code else {}),
        **({names.PACKAGES_VARIABLE: packages} if packages else {}),
        **{f"TRAINYARD_DATASET_{_upper(name)}": paths[name] for name in job.datasets if name in paths},
        **{f"TRAINYARD_PORT_{_upper(name)}": str(port) for name, port in job.ports.items()},
        **_grace(job),
    }
    by_reference = [
        {"name": each.variable, "valueFrom": {"secretKeyRef": {"name": each.secret, "key": each.key}}}
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
    return {"TRAINYARD_GRACE_SECONDS": str(job.grace_seconds), "TORCH_ELASTIC_SHUTDOWN_TIMEOUT": str(timeout)}


def _patch(job: JobSpec) -> dict[str, Any] | None:
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
    return _laid_over("trainyard.dev/job", job, pod)


def _laid_over(manager: str, job: JobSpec, pod: Mapping[str, Any]) -> dict[str, Any]:
    """Return a runtime patch of all pods that have ranks; `manager` is whose it is."""
    jobs = [
        {"name": name, "template": {"spec": {"template": {"spec": dict(pod)}}}}
        for name in _replicated_jobs(job)
    ]
    return {"manager": manager, "trainingRuntimeSpec": {"template": {"spec": {"replicatedJobs": jobs}}}}
