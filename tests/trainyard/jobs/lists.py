"""A fake cluster that lists given objects, in the form of a real API server (1.35, Kueue 0.18), shortened."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from infra.clients.kubernetes import Object
from infra.clients.kubernetes.api import Kind
from trainyard.jobs.cluster import MemberCluster
from trainyard.jobs.key import CLUSTER_QUEUES, LOCAL_QUEUES, TRAIN_JOBS, WORKLOADS

NAMESPACE = "team-research"
START = "2026-11-24T00:00:00Z"


@dataclass
class Lists(MemberCluster):
    """Lists the objects that it has; of other kinds, its user may list none."""

    found: Mapping[Kind, Sequence[Object]]
    running: Sequence[Object] = ()
    api: Any = None
    namespaces: list[str] = field(default_factory=lambda: [NAMESPACE])
    logs: Mapping[str, str] = field(default_factory=dict)
    """Name of a pod → its log."""

    def objects(self, kind: Kind, namespace: str) -> list[Object]:
        return [each for each in self.found.get(kind, ()) if each["metadata"]["namespace"] == namespace]

    def cluster_objects(self, kind: Kind) -> list[Object]:
        return list(self.found.get(kind, ()))

    def last_lines(self, namespace: str, pod: str, container: str, number: int) -> str:
        assert (namespace, container) == (NAMESPACE, "node")
        return "".join(self.logs[pod].splitlines(keepends=True)[-number:])

    def pods(self, namespace: str, job: str = "") -> list[Object]:
        label = "jobset.sigs.k8s.io/jobset-name"
        return [pod for pod in self.running if not job or pod["metadata"]["labels"][label] == job]


def about(name: str, created: str = START, **more: Any) -> dict[str, Any]:
    return {"name": name, "namespace": NAMESPACE, "creationTimestamp": created, **more}


def train_job(name: str, *conditions: Mapping[str, str], created: str = START) -> Object:
    spec = {"trainer": {"numNodes": 2}}
    return {"metadata": about(name, created), "spec": spec, "status": {"conditions": list(conditions)}}


def condition(kind: str, when: str = START, *, status: str = "True", message: str = "") -> dict[str, str]:
    return {"type": kind, "status": status, "lastTransitionTime": when, "message": message, "reason": kind}


def workload(
    job: str,
    *conditions: Mapping[str, str],
    gpus: int = 2,
    created: str = START,
    held: bool = True,
    **spec: Any,
) -> Object:
    """Make the Workload of a job with one GPU per node; `held`: the flavor `spot` has admitted it."""
    limits = {"nvidia.com/gpu": "1"}
    container = {"name": "node", "resources": {"limits": limits, "requests": limits}}
    pods = {"name": "node", "count": gpus, "template": {"spec": {"containers": [container]}}}
    owners = [{"kind": "TrainJob", "name": job}]
    status: dict[str, Any] = {"conditions": list(conditions)}
    if held and any(each["type"] == "QuotaReserved" and each["status"] == "True" for each in conditions):
        usage = {"nvidia.com/gpu": str(gpus)}
        given = [{"name": "node", "flavors": {"nvidia.com/gpu": "spot"}, "resourceUsage": usage}]
        status["admission"] = {"clusterQueue": "gpu", "podSetAssignments": given}
    return {
        "metadata": about(f"trainjob-{job}", created, ownerReferences=owners),
        "spec": {
            "active": True,
            "podSets": [pods],
            "queueName": "research",
            "priority": 1000,
            "priorityClassRef": {"name": "normal"},
            **spec,
        },
        "status": status,
    }


def admitted(when: str = START) -> tuple[dict[str, str], dict[str, str]]:
    return condition("QuotaReserved", when), condition("Admitted", when)


def cluster_queue(
    *,
    quota: int | str = 8,
    used: int | str = 0,
    pending: int = 0,
    name: str = "gpu",
    cohort: str = "",
    **limits: str,
) -> Object:
    offered = {"name": "nvidia.com/gpu", "nominalQuota": str(quota), **limits}
    flavors = [{"name": "spot", "resources": [offered]}]
    usage = [{"name": "spot", "resources": [{"name": "nvidia.com/gpu", "total": str(used), "borrowed": "0"}]}]
    spec: dict[str, Any] = {"resourceGroups": [{"coveredResources": ["nvidia.com/gpu"], "flavors": flavors}]}
    if cohort:
        spec["cohortName"] = cohort
    return {
        "metadata": {"name": name},
        "spec": spec,
        "status": {"flavorsReservation": usage, "flavorsUsage": usage, "pendingWorkloads": pending},
    }


def local_queue() -> Object:
    return {"metadata": about("research"), "spec": {"clusterQueue": "gpu"}}


def pod(job: str, number: int, node: str, **status: Any) -> Object:
    """Make a pod of a JobSet on a node."""
    labels = {
        "jobset.sigs.k8s.io/jobset-name": job,
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
        "jobset.sigs.k8s.io/restart-attempt": "0",
        "batch.kubernetes.io/job-completion-index": str(number),
    }
    container = {
        "name": "node",
        "resources": {"limits": {"nvidia.com/gpu": "2"}},
        "env": [{"name": "PET_NPROC_PER_NODE", "value": "2"}],
    }
    return {
        "metadata": about(f"{job}-node-0-{number}-abcde", labels=labels),
        "spec": {"nodeName": node, "containers": [container], "terminationGracePeriodSeconds": 20},
        "status": {"phase": "Running", **status},
    }


def research(*records: Object, queue: Object | None = None, jobs: Sequence[Object] = ()) -> Lists:
    """Make a cluster with the research team's objects."""
    found = {WORKLOADS: records, LOCAL_QUEUES: [local_queue()], TRAIN_JOBS: jobs}
    return Lists({**found, **({CLUSTER_QUEUES: [queue]} if queue else {})})
