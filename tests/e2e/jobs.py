"""Jobs of any kind, as their operators and the queue report them."""

from __future__ import annotations

import json

from tests.e2e.manifests import NAMESPACE, Manifest
from tests.e2e.stack import LocalStack


def submitted(stack: LocalStack, body: Manifest, condition: str, *, tellers: int = 1) -> str:
    """Create a job, wait until the queue has admitted it and it has ended well; return its logs.

    A job may end before all of its pods have; `tellers` is the number of pods to wait for.
    """
    kind, name = body["kind"].lower(), body["metadata"]["name"]
    stack.apply(body)

    def ended() -> bool:
        true = conditions(stack, kind, name)
        assert "Failed" not in true, json.dumps(true) + logs(stack, name)
        return condition in true

    stack.wait_until(ended, f"{condition} of {kind} {name}")
    assert "spot" in admitted_to(stack, body["kind"], name)
    stack.wait_until(lambda: len(ended_pods(stack, name)) >= tellers, f"{tellers} ended pods of {name}")
    return logs(stack, name)


def conditions(stack: LocalStack, kind: str, name: str) -> dict[str, str]:
    """The true conditions of a job, with their messages."""
    status = stack.get(kind, "-n", NAMESPACE, name).get("status", {})
    return {
        item["type"]: item.get("message", "")
        for item in status.get("conditions", ())
        if item["status"] == "True"
    }


def logs(stack: LocalStack, name: str) -> str:
    """What all pods of a job have written that have come to their end; others go when the job does."""
    pods = ended_pods(stack, name)
    return "".join(stack.kubectl("logs", "-n", NAMESPACE, pod, "--all-containers") for pod in pods)


def ended_pods(stack: LocalStack, name: str) -> list[str]:
    """Name the ended pods of a job that still exist; an operator removes some."""
    return [
        pod["metadata"]["name"]
        for pod in stack.get("pods", "-n", NAMESPACE)["items"]
        if pod["metadata"]["name"].startswith(f"{name}-")
        and pod["status"]["phase"] in {"Succeeded", "Failed"}
        and "deletionTimestamp" not in pod["metadata"]
    ]


def admitted_to(stack: LocalStack, kind: str, name: str) -> set[str]:
    """The flavors that the queue gave to a job."""
    [workload] = [
        workload
        for workload in stack.get("workloads.kueue.x-k8s.io", "-n", NAMESPACE)["items"]
        for owner in workload["metadata"]["ownerReferences"]
        if (owner["kind"], owner["name"]) == (kind, name)
    ]
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return {flavor for item in assignments for flavor in item.get("flavors", {}).values()}
