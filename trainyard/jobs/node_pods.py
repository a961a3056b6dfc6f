"""Finds the newest pod of each node of a job, its ranks, and the pod that runs a given rank."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import catalog
from infra.clients.kubernetes.pods import PodContainer
from infra.errors import InputError, Problem
from trainyard.jobs.key import JobKey

if TYPE_CHECKING:
    from trainyard.jobs.cluster import MemberCluster

Object = Mapping[str, Any]
CONTAINER = "node"
"""Name of the ranks' container in every runtime of the platform; in other pods the first container has the
ranks."""
_JOB_SET = "jobset.sigs.k8s.io"


@dataclass(frozen=True)
class NodePod(PodContainer):
    """The pod of one node of a job."""

    number: int
    """Number of the node, as in `PET_NODE_RANK`."""
    node: str
    """Name of the Kubernetes node that it runs on; empty before it is scheduled."""
    phase: str
    attempt: int
    """Number of restarts of all pods before this one."""
    ranks: int
    """Number of the job's processes in the pod."""

    @property
    def first_rank(self) -> int:
        return self.number * self.ranks

    @property
    def is_running(self) -> bool:
        return self.phase == "Running"


def newest_of_each_node(pods: Sequence[Object]) -> list[NodePod]:
    """Return the newest pod of each node of a job, in the order of the nodes."""
    newest: dict[int, NodePod] = {}
    has_launcher = any(_role(pod) == "launcher" for pod in pods)
    for pod in sorted(pods, key=lambda pod: str(pod["metadata"]["creationTimestamp"])):
        found = _node_pod(pod, has_launcher=has_launcher)
        newest[found.number] = found
    return [newest[number] for number in sorted(newest)]


def pods_of(cluster: "MemberCluster", key: JobKey) -> list[NodePod]:
    """Return the newest pod of each node of a job, in the order of the nodes."""
    return newest_of_each_node(cluster.pods(key.namespace, key.name))


def running_pod(cluster: "MemberCluster", key: JobKey, rank: int) -> NodePod:
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
        fix = f"wait for it (`trainyard job queue`), or read what it wrote: trainyard logs {key.name}"
        return Problem(f"job {key.name}", "no pods now", "a job that runs", fix)
    last = pods[-1].first_rank + pods[-1].ranks - 1
    return Problem("--rank", str(rank), f"0 to {last}", "name a rank that the job has")


def _not_running(key: JobKey, rank: int, pod: NodePod) -> Problem:
    fix = f"see `trainyard jobs`, and what it wrote: trainyard logs {key.name} --rank {rank}"
    return Problem(f"rank {rank} of {key.name}", f"pod {pod.name} is {pod.phase}", "a pod that runs", fix)


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
    """Ranks of a node, as Trainer sets them; `auto` is one for each accelerator."""
    variables = {each["name"]: each.get("value", "") for each in container.get("env", ())}
    return num_ranks(str(variables.get("PET_NPROC_PER_NODE", "")), container.get("resources", {}))


def num_ranks(number: str, resources: Object) -> int:
    """Return how many ranks a node has: the number, or one for each accelerator where it is none."""
    if number.isdigit():
        return int(number)
    limits = resources.get("limits", {})
    return max(1, *(int(limits.get(kind, 0)) for kind in catalog.accelerator_resources()))
