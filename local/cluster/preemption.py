"""Preempts a node as a cloud does: taints it for the preemption notice, powers it off, deletes its Node and
marks its pods as failed.

A node without a notice is powered off at once, and its Node is deleted after it has become NotReady.
"""

import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from datetime import UTC, datetime

from infra.clients.kubernetes import ApiServer, Object
from infra.errors import Problem, TrainyardError
from local.cluster.events import EventLog, PreemptionEvent
from local.cluster.objects import PREEMPTING, is_ready, node_path
from local.cluster.processes import wait_until

TERMINAL_PHASES = ("Succeeded", "Failed")
NOT_READY_SECONDS = 60.0
"""Timeout for NotReady; the controller manager's grace period is 10 s."""


@dataclass(frozen=True)
class PreemptionRecord:
    """Phases of one preemption, with times."""

    node: str
    notice_seconds: float | None
    """Seconds of the preemption notice; None for a preemption without notice."""
    events: tuple[PreemptionEvent, ...]
    pods: tuple[str, ...]
    """Pods (`namespace/name`) that ran when the node was powered off, and failed."""

    def seconds(self, first: str, last: str) -> float:
        """Return the seconds between two phases."""
        times = {event.phase: event.time for event in self.events}
        return times[last] - times[first]


class Preemption:
    """Preempts one node. `kill` powers it off; `removal` is entered while it and its pods are deleted."""

    def __init__(
        self,
        node: str,
        api: ApiServer,
        log: EventLog,
        kill: Callable[[], None],
        removal: AbstractContextManager[None],
    ) -> None:
        self.node = node
        self.path = node_path(node)
        self.api = api
        self.log = log
        self.kill = kill
        self.removal = removal

    def run(self, notice_seconds: float | None) -> PreemptionRecord:
        """Preempt the node with this preemption notice, or none (None); return when its pods have failed."""
        if notice_seconds is not None:
            self._give_notice(notice_seconds)
        self.kill()
        self._reached("killed")
        if notice_seconds is None:
            self._wait_until_missed()
        with self.removal:
            self.api.delete(self.path)
            self._reached("node-deleted")
            names = fail_pods(self.api, self.node)
            self._reached("pods-failed")
        return PreemptionRecord(self.node, notice_seconds, tuple(self.log.events), names)

    def _give_notice(self, seconds: float) -> None:
        """Taint the node, terminate its pods gracefully, and wait for the deadline.

        NoExecute makes the control plane delete the pods with a DisruptionTarget condition, so that their
        processes get SIGTERM. Pods that tolerate the taint, such as those of DaemonSets, run until the end.
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
        """Wait for NotReady: a cloud's node controller then checks whether the instance exists."""
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
            _tolerates_preemption(pod) or pod["status"].get("phase") in TERMINAL_PHASES
            for pod in _pods(self.api, self.node)
        )

    def _reached(self, phase: str) -> None:
        self.log.record(self.node, phase)


def fail_pods(api: ApiServer, node: str) -> tuple[str, ...]:
    """Mark the pods of a deleted node as failed; return `namespace/name` of each.

    The pod garbage collector does the same about 40 s later.
    """
    pods = [pod for pod in _pods(api, node) if pod["status"].get("phase") not in TERMINAL_PHASES]
    for pod in pods:
        _fail(api, pod, f"node {node} was deleted")
    return tuple(f"{pod['metadata']['namespace']}/{pod['metadata']['name']}" for pod in pods)


def _pods(api: ApiServer, node: str) -> list[Object]:
    return api.items("/api/v1/pods", {"fieldSelector": f"spec.nodeName={node}"})


def _fail(api: ApiServer, pod: Object, message: str) -> None:
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
        api.delete(path, {"gracePeriodSeconds": "0"})


def _tolerates_preemption(pod: Object) -> bool:
    """Whether the pod tolerates the preemption taint without a time limit."""
    tolerations = pod["spec"].get("tolerations", [])
    return any(
        toleration.get("key") in {None, PREEMPTING}
        and toleration.get("effect") in {None, "NoExecute"}
        and toleration.get("operator") == "Exists"
        and "tolerationSeconds" not in toleration
        for toleration in tolerations
    )
