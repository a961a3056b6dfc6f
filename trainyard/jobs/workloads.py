"""Reads a Kueue Workload: accelerators, priority, time limit, state and times."""

from collections.abc import Iterable, Mapping
from datetime import datetime

import catalog
from infra.clients.kubernetes import Object
from infra.common import quantities
from trainyard.jobs.key import JobKey


def owner(item: Object) -> tuple[str, str]:
    """Return kind and name of the object that a controller made this one for."""
    owners = item["metadata"].get("ownerReferences") or [{"kind": "", "name": ""}]
    return owners[0]["kind"], owners[0]["name"]


def workload_of(workloads: Iterable[Object], key: JobKey) -> Object | None:
    """Return the queue's record of a job; None where the queue has none."""
    return next((each for each in workloads if owner(each) == ("TrainJob", key.name)), None)


def accelerators(workload: Object) -> int:
    """Return how many accelerators all pods of the job ask for."""
    return sum(
        int(pod_set["count"]) * sum(accelerators_of(pod_set["template"]["spec"]).values())
        for pod_set in workload["spec"]["podSets"]
    )


def pods(workload: Object) -> list[Object]:
    """Return the spec of a pod of each pod set."""
    return [pod_set["template"]["spec"] for pod_set in workload["spec"]["podSets"]]


def accelerators_of(pod: Object) -> dict[str, int]:
    """Return how many accelerators of each kind a pod asks for."""
    asked = [container.get("resources", {}) for container in pod["containers"]]
    found = {
        kind: sum(int({**each.get("requests", {}), **each.get("limits", {})}.get(kind, 0)) for each in asked)
        for kind in catalog.accelerator_resources()
    }
    return {kind: number for kind, number in found.items() if number}


def by_flavor(workload: Object) -> dict[str, int]:
    """Return the accelerators that an admitted job has of each flavor."""
    found: dict[str, int] = {}
    kinds = catalog.accelerator_resources()
    for pod_set in workload.get("status", {}).get("admission", {}).get("podSetAssignments", ()):
        usage = pod_set.get("resourceUsage", {})
        for resource, flavor in pod_set.get("flavors", {}).items():
            if resource in kinds:
                found[flavor] = found.get(flavor, 0) + quantities.read(usage.get(resource, 0))
    return found


def nodes(workload: Object) -> int:
    """Return how many pods the job has."""
    return sum(int(pod_set["count"]) for pod_set in workload["spec"]["podSets"])


def priority(workload: Object) -> str:
    """Return the name of its priority class; its number where it has none."""
    reference = workload["spec"].get("priorityClassRef") or {}
    return str(reference.get("name") or workload["spec"].get("priority", 0))


def limit_seconds(workload: Object) -> float | None:
    """Return the longest time that the queue lets it run; None without a limit."""
    limit = workload["spec"].get("maximumExecutionTimeSeconds")
    return None if limit is None else float(limit)


def since(workload: Object, condition: str) -> datetime | None:
    """Return when a condition became true; None where it is not."""
    for each in workload.get("status", {}).get("conditions", ()):
        if each["type"] == condition and each["status"] == "True":
            return moment(each["lastTransitionTime"])
    return None


def is_waiting(workload: Object) -> bool:
    """Whether a workload is pending: neither admitted, nor paused, nor finished."""
    active = workload["spec"].get("active", True)
    return bool(active) and not (since(workload, "QuotaReserved") or since(workload, "Finished"))


def is_running(workload: Object) -> bool:
    """Whether a workload has its quota and has not finished."""
    return since(workload, "QuotaReserved") is not None and since(workload, "Finished") is None


def created(item: Mapping[str, Mapping[str, str]]) -> datetime:
    """Return when an object was made."""
    return moment(item["metadata"]["creationTimestamp"])


def moment(text: str) -> datetime:
    """Read a time as Kubernetes writes it."""
    return datetime.fromisoformat(text)
