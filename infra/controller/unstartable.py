"""Ends the wait of admitted jobs that cannot start: a pod's image, Secret, claim or program is not there.

Waiting does not heal it, and meanwhile the job holds accelerators that others wait for. Its Workload is
deactivated, as `trainyard pause` does it: the quota is free, and `trainyard resume` starts the job again.
"""

import time
from collections.abc import Iterable, Iterator, Mapping
from http import HTTPStatus

from infra.controller.api import Api, Object, RefusedError, timestamp
from infra.controller.reasons import Reason, reason_of

CONDITION = "CannotStart"
"""Type of the Workload's condition, and reason of the event. It holds while its `observedGeneration` is the
Workload's: whoever pauses or resumes the job makes another."""
WORKLOAD_NAME = "kueue.x-k8s.io/workload"
"""Annotation of a pod by Kueue, with the name of its Workload."""
_ORIGIN = "kueue.x-k8s.io/multikueue-origin"
"""Label of a Workload whose job is another cluster's."""
_KUEUE = "kueue.x-k8s.io/v1beta2"


def cannot_start(workload: Object) -> str:
    """Return why the controller has deactivated a Workload; empty where it has not, or not last."""
    generation = workload.get("metadata", {}).get("generation")
    if workload.get("spec", {}).get("active", True):
        return ""
    conditions = [
        each for each in workload.get("status", {}).get("conditions") or () if each["type"] == CONDITION
    ]
    return next((each["message"] for each in conditions if each.get("observedGeneration") == generation), "")


class Unstartable:
    """Looks for such jobs."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._since: dict[str, float] = {}
        """UID of a Workload → when it was first seen to be unable to start."""

    def look(self, namespaces: Iterable[str], seconds: float) -> None:
        """Look once at the jobs of these namespaces; end each wait that all looks of `seconds` have seen."""
        now, since = time.monotonic(), {}
        for workload, reason in self._found(namespaces):
            uid = workload["metadata"]["uid"]
            since[uid] = self._since.get(uid, now)
            if now - since[uid] >= seconds:
                self._end(workload, reason)
        self._since = since

    def _found(self, namespaces: Iterable[str]) -> Iterator[tuple[Object, Reason]]:
        for namespace in namespaces:
            waiting = [each for each in self._api.items(_workloads(namespace)) if _is_starting(each)]
            if not waiting:
                continue
            pods = self._api.items(f"/api/v1/namespaces/{namespace}/pods")
            events = self._api.items(f"/api/v1/namespaces/{namespace}/events")
            for workload in waiting:
                name = workload["metadata"]["name"]
                own = [pod for pod in pods if _workload_of(pod) == name]
                reason = reason_of(own, events)
                if reason is not None and not reason.heals:
                    yield workload, reason

    def _end(self, workload: Object, reason: Reason) -> None:
        """Write the reason, then deactivate what has not changed since; else the next look does it."""
        about = workload["metadata"]
        path = f"{_workloads(about['namespace'])}/{about['name']}"
        condition = {
            "type": CONDITION,
            "status": "True",
            "reason": reason.kind.title().replace("-", ""),
            "message": str(reason),
            "observedGeneration": about["generation"] + 1,
            "lastTransitionTime": timestamp(),
        }
        named = {key: about[key] for key in ("name", "namespace", "uid")}
        kind = {"apiVersion": _KUEUE, "kind": "Workload", "metadata": named}
        try:
            written = self._api.apply(f"{path}/status", {**kind, "status": {"conditions": [condition]}})
            seen = {"resourceVersion": written["metadata"]["resourceVersion"]}
            if written["metadata"]["generation"] == about["generation"]:
                self._api.merge(path, {"metadata": seen, "spec": {"active": False}})
                self._api.create(f"/api/v1/namespaces/{about['namespace']}/events", _event(workload, reason))
        except RefusedError as error:
            if error.status not in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}:
                raise


def _workloads(namespace: str) -> str:
    return f"/apis/{_KUEUE}/namespaces/{namespace}/workloads"


def _is_starting(workload: Object) -> bool:
    """Whether a job of this cluster has its quota and not yet all of its pods."""
    conditions = workload.get("status", {}).get("conditions") or ()
    true = {each["type"] for each in conditions if each["status"] == "True"}
    is_ours = _ORIGIN not in (workload["metadata"].get("labels") or {})
    waits = "Admitted" in true and not true & {"Finished", "PodsReady"}
    return is_ours and waits and bool(workload["spec"].get("active", True))


def _workload_of(pod: Object) -> str:
    annotations: Mapping[str, str] = pod["metadata"].get("annotations") or {}
    return annotations.get(WORKLOAD_NAME, "")


def _event(workload: Object, reason: Reason) -> Object:
    """An event of the job, or of the Workload where no controller made it for a job."""
    about, now = workload["metadata"], timestamp()
    [job] = (about.get("ownerReferences") or ())[:1] or [{**about, "apiVersion": _KUEUE, "kind": "Workload"}]
    concerned = {key: job[key] for key in ("apiVersion", "kind", "name", "uid")}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"generateName": f"{about['name']}.", "namespace": about["namespace"]},
        "involvedObject": {**concerned, "namespace": about["namespace"]},
        "type": "Warning",
        "reason": CONDITION,
        "message": f"{reason}; its quota is free, `trainyard resume {job['name']}` starts it again",
        "source": {"component": "trainyard-controller"},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }
