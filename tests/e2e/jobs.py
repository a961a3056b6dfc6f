"""Jobs of any kind on a cluster: submission, conditions, admission and logs."""

import json

from tests.e2e.manifests import NAMESPACE, Manifest
from tests.e2e.stack import LocalStack


def logs_of_completed(stack: LocalStack, body: Manifest, condition: str, *, num_pods: int = 1) -> str:
    """Create a job, wait until it has been admitted and has this condition; return its logs.

    A job may end before all of its pods have; `num_pods` is the number of ended pods to wait for.
    """
    kind, name = body["kind"].lower(), body["metadata"]["name"]
    stack.apply(body)

    def ended() -> bool:
        true = conditions(stack, kind, name)
        assert "Failed" not in true, json.dumps(true) + logs(stack, name)
        return condition in true

    stack.wait_until(ended, f"{condition} of {kind} {name}")
    assert "spot" in admitted_to(stack, body["kind"], name)
    stack.wait_until(lambda: len(ended_pods(stack, name)) >= num_pods, f"{num_pods} ended pods of {name}")
    return logs(stack, name)


def conditions(stack: LocalStack, kind: str, name: str) -> dict[str, str]:
    """Return the true conditions of a job, with their messages."""
    status = stack.get(kind, "-n", NAMESPACE, name).get("status", {})
    return {
        item["type"]: item.get("message", "")
        for item in status.get("conditions", ())
        if item["status"] == "True"
    }


def logs(stack: LocalStack, name: str) -> str:
    """Return the logs of a job's ended pods; other pods may be deleted with the job."""
    pods = ended_pods(stack, name)
    return "".join(stack.kubectl("logs", "-n", NAMESPACE, pod, "--all-containers") for pod in pods)


def ended_pods(stack: LocalStack, name: str) -> list[str]:
    """Return the names of a job's ended pods that still exist; some operators delete them."""
    return [
        pod["metadata"]["name"]
        for pod in stack.get("pods", "-n", NAMESPACE)["items"]
        if pod["metadata"]["name"].startswith(f"{name}-")
        and pod["status"]["phase"] in {"Succeeded", "Failed"}
        and "deletionTimestamp" not in pod["metadata"]
    ]


def admitted_to(stack: LocalStack, kind: str, name: str) -> set[str]:
    """Return the flavors that the queue has assigned to a job."""
    [workload] = [
        workload
        for workload in stack.get("workloads.kueue.x-k8s.io", "-n", NAMESPACE)["items"]
        for owner in workload["metadata"]["ownerReferences"]
        if (owner["kind"], owner["name"]) == (kind, name)
    ]
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return {flavor for item in assignments for flavor in item.get("flavors", {}).values()}
