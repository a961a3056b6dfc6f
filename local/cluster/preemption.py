"""The loss of a spot node: what a cloud does to it, and what a cloud's controllers do about it."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.errors import Problem, TrainyardError
from local.cluster.api import ApiServerClient, Object
from local.cluster.events import EventLog, PreemptionEvent
from local.cluster.objects import PREEMPTING, is_ready, node_path
from local.cluster.processes import wait_until

TERMINAL_PHASES = ("Succeeded", "Failed")
NOT_READY_SECONDS = 60.0
"""Longest wait for the controller manager to see a dead node; its grace is 10 s."""


@dataclass(frozen=True)
class PreemptionRecord:
    """What was done to a node, phase by phase."""

    node: str
    notice_seconds: float | None
    """None: it was killed with no word."""
    events: tuple[PreemptionEvent, ...]
    pods: tuple[str, ...]
    """`namespace/name` of the pods that were still there when the node was lost, and failed with it."""

    def seconds(self, first: str, last: str) -> float:
        """Time from one phase to another."""
        times = {event.phase: event.time for event in self.events}
        return times[last] - times[first]


class Preemption:
    """Takes one node away. `kill` ends the machine behind it."""

    def __init__(self, node: str, api: ApiServerClient, log: EventLog, kill: Callable[[], None]) -> None:
        self.node = node
        self.path = node_path(node)
        self.api = api
        self.log = log
        self.kill = kill

    def run(self, notice_seconds: float | None) -> PreemptionRecord:
        """Take the node with this notice, or with none; returns when its pods have failed."""
        if notice_seconds is not None:
            self._give_notice(notice_seconds)
        self.kill()
        self._reached("killed")
        if notice_seconds is None:
            self._wait_until_missed()
        self.api.delete(self.path)
        self._reached("node-deleted")
        names = fail_pods(self.api, self.node)
        self._reached("pods-failed")
        return PreemptionRecord(self.node, notice_seconds, tuple(self.log.events), names)

    def _give_notice(self, seconds: float) -> None:
        """Keep new pods away, have the old ones terminated gracefully, and wait for the deadline.

        NoExecute makes the control plane delete the pods with a DisruptionTarget condition, so that
        their processes get SIGTERM; pods that tolerate it, as those of DaemonSets do, stay to the end.
        """
        deadline = time.time() + seconds
        self._reached("notice")
        self._taint(deadline, "NoSchedule")
        self._taint(deadline, "NoSchedule", "NoExecute")
        self._reached("draining")
        if wait_until(self._is_drained, seconds=max(0.0, deadline - time.time()), poll_seconds=0.25):
            self._reached("drained")
        time.sleep(max(0.0, deadline - time.time()))

    def _wait_until_missed(self) -> None:
        """Wait for NotReady, on which a cloud's node controller asks whether the instance still exists."""
        if not wait_until(lambda: not is_ready(self.api.get(self.path)), seconds=NOT_READY_SECONDS):
            got = f"still Ready after {NOT_READY_SECONDS:.0f} s"
            fix = "see whether something started it again, and the log of kube-controller-manager"
            raise TrainyardError([Problem(f"node {self.node}", got, "NotReady once it is dead", fix)])
        self._reached("not-ready")

    def _taint(self, deadline: float, *effects: str) -> None:
        found = self.api.get(self.path)["spec"].get("taints", [])
        others = [taint for taint in found if taint["key"] != PREEMPTING]
        ours = [{"key": PREEMPTING, "value": str(int(deadline)), "effect": effect} for effect in effects]
        self.api.merge(self.path, {"spec": {"taints": [*others, *ours]}})

    def _is_drained(self) -> bool:
        return all(
            _stays(pod) or pod["status"].get("phase") in TERMINAL_PHASES for pod in _pods(self.api, self.node)
        )

    def _reached(self, phase: str) -> None:
        self.log.record(self.node, phase)


def fail_pods(api: ApiServerClient, node: str) -> tuple[str, ...]:
    """Fail the pods of a machine that is gone; return `namespace/name` of each.

    The pod garbage collector does the same, some 40 s later.
    """
    pods = [pod for pod in _pods(api, node) if pod["status"].get("phase") not in TERMINAL_PHASES]
    for pod in pods:
        _fail(api, pod, f"node {node} is gone")
    return tuple(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods)


def _pods(api: ApiServerClient, node: str) -> list[Object]:
    return list(api.get("/api/v1/pods", fieldSelector=f"spec.nodeName={node}")["items"])


def _fail(api: ApiServerClient, pod: Object, message: str) -> None:
    metadata = pod["metadata"]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}"
    condition = {
        "type": "DisruptionTarget",
        "status": "True",
        "reason": "DeletionByPodGC",
        "message": message,
        "lastTransitionTime": datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
    }
    api.merge_status(path, {"phase": "Failed", "conditions": [condition]})
    if "deletionTimestamp" in metadata:
        api.delete(path, now=True)


def _stays(pod: Object) -> bool:
    """Whether the pod tolerates the preemption for good."""
    tolerations = pod["spec"].get("tolerations", [])
    return any(
        toleration.get("key") in {None, PREEMPTING}
        and toleration.get("effect") in {None, "NoExecute"}
        and toleration.get("operator") == "Exists"
        and "tolerationSeconds" not in toleration
        for toleration in tolerations
    )
