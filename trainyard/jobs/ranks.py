"""Finds the pods of a job's nodes, and the pod that runs a given rank."""

from __future__ import annotations

from collections.abc import Sequence

from infra.errors import InputError, Problem
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod, newest_of_each_node


def pods_of(cluster: MemberCluster, key: JobKey) -> list[NodePod]:
    """Return the newest pod of each node of a job, in the order of the nodes."""
    return newest_of_each_node(cluster.pods(key.namespace, key.name))


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
