"""Finds the pods of a job's nodes, and the pod that runs a given rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import catalog
from infra.errors import InputError, Problem
from trainyard.jobs import JobKey
from trainyard.member.cluster import MemberCluster, Object

CONTAINER = "node"
"""Of a training pod, in every runtime; another's is its first."""
_JOB_SET = "jobset.sigs.k8s.io"


@dataclass(frozen=True)
class NodePod:
    """The pod of one node of a job."""

    name: str
    number: int
    """Of the node, as `PET_NODE_RANK`."""
    node: str
    """Name of the Kubernetes node that it runs on; empty while it has none."""
    phase: str
    attempt: int
    """0, and one more after each restart of all pods."""
    ranks: int
    """Processes of the job in it."""
    container: str
    namespace: str

    @property
    def first_rank(self) -> int:
        return self.number * self.ranks

    @property
    def is_running(self) -> bool:
        return self.phase == "Running"


def pods_of(cluster: MemberCluster, key: JobKey) -> list[NodePod]:
    """Return the newest pod of each node of a job, in the order of the nodes."""
    newest: dict[int, NodePod] = {}
    pods = cluster.pods(key.namespace, key.name)
    has_launcher = any(_role(pod) == "launcher" for pod in pods)
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        found = _node_pod(pod, has_launcher=has_launcher)
        newest[found.number] = found
    return [newest[number] for number in sorted(newest)]


def _node_pod(pod: Object, *, has_launcher: bool) -> NodePod:
    about, labels = pod["metadata"], pod["metadata"]["labels"]
    number = int(labels.get("batch.kubernetes.io/job-completion-index", 0))
    # The launcher of an MPI job is its first node.
    is_worker = has_launcher and _role(pod) != "launcher"
    containers = {each["name"]: each for each in pod["spec"]["containers"]}
    container = containers.get(CONTAINER) or pod["spec"]["containers"][0]
    return NodePod(
        name=about["name"],
        number=number + is_worker,
        node=str(pod["spec"].get("nodeName", "")),
        phase=str(pod["status"].get("phase", "")),
        attempt=int(labels.get(f"{_JOB_SET}/restart-attempt", 0)),
        ranks=_ranks(container),
        container=container["name"],
        namespace=about["namespace"],
    )


def _role(pod: Object) -> str:
    return str(pod["metadata"]["labels"].get(f"{_JOB_SET}/replicatedjob-name", ""))


def _ranks(container: Object) -> int:
    """As Trainer says; `auto` is one for each accelerator."""
    variables = {each["name"]: each.get("value", "") for each in container.get("env", ())}
    number = str(variables.get("PET_NPROC_PER_NODE", ""))
    if number.isdigit():
        return int(number)
    limits = container.get("resources", {}).get("limits", {})
    return max(1, *(int(limits.get(kind, 0)) for kind in catalog.accelerator_resources()))


def running_pod(cluster: MemberCluster, key: JobKey, rank: int) -> NodePod:
    """Return the pod that has a rank now.

    Raises:
        InputError: the job has no such rank, or its pod does not run.
    """
    pods = pods_of(cluster, key)
    for pod in pods:
        if pod.first_rank <= rank < pod.first_rank + pod.ranks:
            if pod.is_running:
                return pod
            raise InputError([_not_running(key, rank, pod)])
    raise InputError([_no_rank(key, rank, pods)])


def _no_rank(key: JobKey, rank: int, pods: Sequence[NodePod]) -> Problem:
    if not pods:
        fix = f"wait for it (`trainyard queue`), or read what it wrote: trainyard logs {key.name}"
        return Problem(f"job {key.name}", "no pods now", "a job that runs", fix)
    last = pods[-1].first_rank + pods[-1].ranks - 1
    return Problem("--rank", str(rank), f"0 to {last}", "name a rank that the job has")


def _not_running(key: JobKey, rank: int, pod: NodePod) -> Problem:
    fix = f"see `trainyard jobs`, and what it wrote: trainyard logs {key.name} --rank {rank}"
    return Problem(f"rank {rank} of {key.name}", f"pod {pod.name} is {pod.phase}", "a pod that runs", fix)
