"""`TrainingJob`: checks one job, and declares it in a team's queue on the cluster of the program's Kubernetes
provider.

What only a stack can resolve (datasets, pools for a job's requirements) is refused. The input `queues`, an
output of a `Cluster`, lets a preview refuse an unknown team or queue. Without that input, if the job names a
queue, the preview looks for its local queue on the cluster, and fails if there is none. A dry run of the job
would not do: the provider takes an admission policy's refusal for missing rights (pulumi-kubernetes 4.25,
`Create`).

Queues suspend and resume a running job by a field that this component never declares. All other fields of a
TrainJob are immutable (Kubeflow Trainer, "spec is immutable"), so a changed job replaces the former one, with
a separate run folder.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import pulumi

import catalog
from infra.common import names
from infra.common.kubernetes_objects import ExistingObject, KubernetesObject
from infra.errors import InputError, Problem, did_you_mean
from infra.stackfile.finding import unknown
from infra.stackfile.job import JobSpec
from infra.stackfile.source import show
from trainyard.jobs.key import QUEUE
from trainyard.jobs.manifest import CHECKPOINTS, manifest

LOCAL_QUEUES = ("kueue.x-k8s.io/v1beta2", "LocalQueue")
Queues = Any
"""The input `queues`: team → its queues, in the form of a Cluster's output; UNKNOWN, or None if omitted."""

_STACK_ONLY_KEYS: Mapping[str, str] = {
    "needs": "write the `runtime`: the cluster's ClusterTrainingRuntimes, of `torch-tcp` or of a fabric",
    "datasets": "write their paths into `command` or `args`: /mnt/datasets/…",
    "files": "leave it out: `trainyard run` stores folders of code",
    "requirements": "leave it out: `trainyard run` stores packages, whose digest `packages` takes",
    "interruptions": "leave it out: only `trainyard run` and `up` simulate preemptions",
}
"""Key of a job that only a stack or a command can resolve → what to write instead."""


def check(job: JobSpec, queues: Queues = None) -> None:
    """Raise InputError with all keys that only a stack can resolve, and with a queue of another team."""
    if problems := [*_problems(job), *_of_other_teams(job, queues)]:
        raise InputError(problems)


def _problems(job: JobSpec) -> Iterator[Problem]:
    for key, fix in _STACK_ONLY_KEYS.items():
        field = JobSpec.model_fields[key]
        if (value := getattr(job, key)) != field.default:
            yield Problem(
                f"job.{field.alias or key}", str(value), "a key for jobs of `trainyard run` only", fix
            )
    known = [names.runtime(kind, each.name) for each in catalog.fabrics() for kind in each.frameworks]
    if job.needs is None and job.runtime not in known:
        fix = did_you_mean(job.runtime, known, "name it, such as torch-tcp")
        allowed = (
            "a training runtime of the cluster: torch or mpi, and its fabric (`trainyard catalog fabrics`)"
        )
        yield Problem("job.runtime", repr(job.runtime) if job.runtime else "none", allowed, fix)


def _of_other_teams(job: JobSpec, queues: Queues) -> Iterator[Problem]:
    if queues is None or queues is pulumi.UNKNOWN:
        return
    if not isinstance(queues, Mapping) or not all(_is_of_a_team(each) for each in queues.values()):
        allowed = "team → its namespace, localQueue, clusterQueue and moreLocalQueues"
        yield Problem(
            "queues", str(queues), allowed, "give the output `queues` of a Cluster, or leave it out"
        )
    elif job.team not in queues:
        yield _unknown("team", job.team, queues, "a team of the cluster")
    elif job.queue and job.queue not in (known := _local_queues(queues[job.team])):
        yield _unknown("queue", job.queue, known, f"a queue of team {job.team}")


def _is_of_a_team(entry: Any) -> bool:  # noqa: ANN401 -- whatever the user wrote
    return isinstance(entry, Mapping) and {"localQueue", "clusterQueue"} <= entry.keys()


def _unknown(key: str, got: str, known: Iterable[str], what: str) -> Problem:
    path, *rest = unknown(("job", key), got, known, what)
    return Problem(show(path), *rest)


def _local_queues(team: Mapping[str, Any]) -> dict[str, str]:
    """Return cluster queue → the team's local queue into it, the first one first."""
    return {team["clusterQueue"]: team["localQueue"], **(team.get("moreLocalQueues") or {})}


async def local_queue(job: JobSpec, queues: Queues, options: pulumi.ResourceOptions) -> pulumi.Input[str]:
    """Return the name of the local queue: the team's own for its first queue."""
    if not job.queue:
        return job.team
    if queues is pulumi.UNKNOWN:
        return _not_known()
    if queues is not None:
        return _local_queues(queues[job.team])[job.queue]
    first = _read_local_queue(job, job.team, options)
    if not await first.is_known():
        return _not_known()
    if (await first.future() or {}).get("clusterQueue") == job.queue:
        return job.team
    other = f"{job.team}-{job.queue}"
    return _read_local_queue(job, other, options).apply(lambda _: other)


def _not_known() -> pulumi.Output[Any]:
    return pulumi.Output.from_input(pulumi.UNKNOWN)


def _read_local_queue(job: JobSpec, name: str, options: pulumi.ResourceOptions) -> pulumi.Output[Any]:
    """Read the existing local queue; the engine fails with its name if it does not exist."""
    identity = f"{names.team_namespace(job.team)}/{name}"
    return ExistingObject(f"{job.name}/{name}", *LOCAL_QUEUES, identity, options).spec


async def declare_job(job: JobSpec, queues: Queues, options: pulumi.ResourceOptions) -> dict[str, Any]:
    """Declare the TrainJob and return the outputs; `options` are those of each part."""
    asked = job.model_dump_json(exclude_defaults=True)
    run = f"run-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
    queue = await local_queue(job, queues, options)
    body = manifest(job, run)
    body["metadata"]["labels"][QUEUE] = queue
    anew = pulumi.ResourceOptions(replace_on_changes=["spec"], delete_before_replace=True)
    KubernetesObject(body, pulumi.ResourceOptions.merge(options, anew))
    metadata = body["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "queue": queue,
        "runDir": f"{CHECKPOINTS}/{job.name}/{run}",
    }
