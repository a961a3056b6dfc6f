"""A training runtime, as a member of a team sees it: its image, and the data that its pods find."""

from __future__ import annotations

import json
from dataclasses import dataclass

from infra import names
from infra.errors import InputError, Problem
from infra.spec.job import JobSpec
from trainyard.member.cluster import RUNTIMES, Cluster, Object
from trainyard.member.ranks import CONTAINER


@dataclass(frozen=True)
class StagedDataset:
    """Data that are staged for all teams."""

    name: str
    path: str
    """Seen from the folder of datasets."""
    digest: str


@dataclass(frozen=True)
class Runtime:
    """How jobs of one framework and fabric start."""

    name: str
    image: str
    datasets: tuple[StagedDataset, ...]

    def check_datasets(self, job: JobSpec) -> None:
        """See to it that all datasets of a job are there.

        Raises:
            InputError: some are not.
        """
        known = {each.name for each in self.datasets}
        allowed = ", ".join(sorted(known)) or "none: the stack stages no data"
        wanted = [*job.datasets, *([job.dataset] if job.dataset else [])]
        problems = [
            Problem(
                "datasets", name, allowed, "name one of these, or ask for it to be staged (docs/datasets.md)"
            )
            for name in wanted
            if name not in known
        ]
        if problems:
            raise InputError(problems)


def runtime_of(cluster: Cluster, job: JobSpec) -> Runtime:
    """Return the runtime that a job names.

    Raises:
        InputError: the cluster has no such.
    """
    known = {str(each["metadata"]["name"]): each for each in cluster.cluster_objects(RUNTIMES)}
    if job.runtime not in known:
        allowed = ", ".join(sorted(known)) or "what the cluster has, and you may see none"
        raise InputError([Problem("runtime", job.runtime, allowed, "name one of these, or leave it out")])
    return _read(job.runtime, known[job.runtime])


def _read(name: str, found: Object) -> Runtime:
    text = (found["metadata"].get("annotations") or {}).get(names.DATASETS_ANNOTATION, "{}")
    datasets = tuple(StagedDataset(each, *about) for each, about in json.loads(text).items())
    jobs = found["spec"]["template"]["spec"]["replicatedJobs"]
    containers = [
        each
        for job in jobs
        for each in job["template"]["spec"]["template"]["spec"]["containers"]
        if each["name"] == CONTAINER
    ]
    image = str(containers[0].get("image", "")) if containers else ""
    return Runtime(name, image, datasets)
