"""Reads a training runtime as team members see it (its image and datasets), and refuses a job whose datasets
are not staged or not for its team.
"""

import json
from collections.abc import Set
from dataclasses import dataclass

from infra.clients.kubernetes import Object
from infra.common import names
from infra.errors import InputError, Problem
from infra.stackfile.job import JobSpec
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import RUNTIMES
from trainyard.jobs.node_pods import CONTAINER


@dataclass(frozen=True)
class StagedDataset:
    """Data that are staged for all teams, or for some."""

    name: str
    path: str
    """Path relative to the folder of datasets."""
    digest: str
    teams: tuple[str, ...] | None = None
    """Teams that may read the dataset; None: all."""

    def is_read_by(self, team: str) -> bool:
        """Whether jobs of a team find it."""
        return self.teams is None or team in self.teams


@dataclass(frozen=True)
class Runtime:
    """A training runtime: the template of jobs of one framework and fabric."""

    name: str
    image: str
    datasets: tuple[StagedDataset, ...]

    def check_datasets(self, job: JobSpec) -> None:
        """Check that all datasets of a job are staged, and that its team may read them.

        Raises:
            InputError: some are not, or may not be read.
        """
        known = {each.name for each in self.datasets}
        read = {each.name for each in self.datasets if each.is_read_by(job.team)}
        wanted = dict.fromkeys(job.datasets)
        missing = [_not_read(name, job.team, known, read) for name in wanted if name not in read]
        if missing:
            raise InputError(missing)


def _not_read(name: str, team: str, known: Set[str], read: Set[str]) -> Problem:
    """Return why a team's job finds no dataset of that name: it is not staged, or for other teams."""
    none = (
        f"none: all datasets are for other teams than {team}" if known else "none: the stack stages no data"
    )
    allowed = ", ".join(sorted(read)) or none
    if name in known:
        fix = f"name one of these, or ask for {team} among its `teams` in the stack file (docs/datasets.md)"
        return Problem("datasets", f"{name}, which team {team} may not read", allowed, fix)
    return Problem(
        "datasets", name, allowed, "name one of these, or ask for it to be staged (docs/datasets.md)"
    )


def runtime_of(cluster: MemberCluster, job: JobSpec) -> Runtime:
    """Return the runtime that a job names.

    Raises:
        InputError: the cluster has no runtime of that name.
    """
    known = {str(each["metadata"]["name"]): each for each in cluster.cluster_objects(RUNTIMES)}
    if job.runtime not in known:
        allowed = ", ".join(sorted(known)) or "a runtime of the cluster; you may see none"
        raise InputError([Problem("runtime", job.runtime, allowed, "name one of these, or leave it out")])
    return _read(job.runtime, known[job.runtime])


def _read(name: str, found: Object) -> Runtime:
    text = (found["metadata"].get("annotations") or {}).get(names.DATASETS_ANNOTATION, "{}")
    datasets = tuple(
        StagedDataset(each, path, digest, tuple(readers[0]) if readers else None)
        for each, (path, digest, *readers) in json.loads(text).items()
    )
    jobs = found["spec"]["template"]["spec"]["replicatedJobs"]
    containers = [
        each
        for job in jobs
        for each in job["template"]["spec"]["template"]["spec"]["containers"]
        if each["name"] == CONTAINER
    ]
    image = str(containers[0].get("image", "")) if containers else ""
    return Runtime(name, image, datasets)
