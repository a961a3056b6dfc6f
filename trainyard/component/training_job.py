"""`TrainingJob`: one job in the queue of a team, on a cluster that is there.

The program's provider of Kubernetes says on which; nothing else of the cluster is known, so that what only a
stack can say (its datasets, pools for what a job needs) is refused. Queues suspend and resume a job while it
lives: that is a field that this never declares. All else of a TrainJob is fixed once it is there (Kubeflow
Trainer, "spec is immutable"): a changed job takes the place of the former one, with a folder of its own.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

import pulumi

from infra.errors import InputError, Problem
from infra.kubernetes_objects import KubernetesObject
from infra.spec.job import JobSpec
from trainyard.jobs import CHECKPOINTS, JobPlace, manifest

_OF_A_STACK: Mapping[str, str] = {
    "needs": "write the `runtime`: the cluster's ClusterTrainingRuntimes, of `torch-none` or of a fabric",
    "dataset": "write its path among `overrides`, as data.path",
    "datasets": "write their paths into `command`: /mnt/datasets/…",
    "files": "leave it out: `trainyard run` stores folders of code",
    "interruptions": "leave it out: `trainyard up` brings them about",
}
"""Keys of a job that a stack or a command answers for, and what to do without one."""


def check(job: JobSpec) -> None:
    """Refuse what a job alone cannot have. Raises InputError with every problem."""
    if problems := list(_problems(job)):
        raise InputError(problems)


def _problems(job: JobSpec) -> Iterator[Problem]:
    for key, fix in _OF_A_STACK.items():
        if (value := getattr(job, key)) != JobSpec.model_fields[key].default:
            yield Problem(f"job.{key}", str(value), "a key of a job of a stack", fix)
    if not job.runtime and job.needs is None:
        yield Problem(
            "job.runtime", "none", "a training runtime of the cluster", "name it, such as torch-none"
        )


def declare_job(job: JobSpec, options: pulumi.ResourceOptions) -> dict[str, Any]:
    """Declare the TrainJob and return the outputs; `options` are those of each part."""
    asked = job.model_dump_json(exclude_defaults=True)
    run = f"run-{hashlib.sha256(asked.encode()).hexdigest()[:8]}"
    queue = f"{job.team}-{job.queue}" if job.queue else job.team
    body = manifest(job, run, place=JobPlace(queue))
    anew = pulumi.ResourceOptions(replace_on_changes=["spec"], delete_before_replace=True)
    KubernetesObject(body, pulumi.ResourceOptions.merge(options, anew))
    metadata = body["metadata"]
    return {
        "name": metadata["name"],
        "namespace": metadata["namespace"],
        "queue": queue,
        "runDir": f"{CHECKPOINTS}/{job.name}/{run}",
    }
