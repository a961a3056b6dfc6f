"""`Jobs`: submits, lists, reads and deletes training jobs through the Kubernetes API. A job's state is read
from its TrainJob, its Workload and its pods.

A job that `Jobs` submits is outside of the engine's state, since queues change its spec while it runs.
"""

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from http import HTTPStatus
from typing import Any, Literal

from infra.clients.kubernetes import ApiError, ApiServer, Object
from infra.clients.kubernetes.api import path_of
from infra.common import names
from infra.controller.reasons import reason_of
from infra.controller.unstartable import cannot_start
from infra.errors import ExitCode, Problem, TrainyardError
from trainyard.jobs.key import JOB_SET_NAME, TRAIN_JOBS, WORKLOADS, JobKey
from trainyard.jobs.messages import in_our_words
from trainyard.jobs.node_pods import NodePod, newest_of_each_node
from trainyard.jobs.served import check_served
from trainyard.jobs.workloads import workload_of

_NO_SHELL = (
    "Its containers were killed as they started (FailedPostStartHook): the platform's check of the fabric"
    " could not run, since their image has no /bin/sh. Put one into it, or take the check off the runtime:"
    " unchecked_runtimes in the stack file."
)
DELETION_SECONDS = 30.0
"""Maximum seconds to wait for a deleted job, beyond its pods' grace period."""


@dataclass(frozen=True)
class Staging:
    """State of the staging of a dataset."""

    phase: Literal["unknown", "hidden", "under way", "staged", "failed"]
    """Phase of the staging; `hidden`: the user may not see it."""
    job: str = ""
    """Name of the staging Job, as `kubectl logs` takes it."""


@dataclass(frozen=True)
class JobState:
    """State of a job, from Kueue's Workload and the TrainJob."""

    phase: str
    """Phase of the job: `queued`, `admitted`, `running`, `held` (only in `trainyard jobs`), `pausing`,
    `paused`, `stopped` (it cannot start, see `infra.controller`), `complete` or `failed`."""
    flavor: str = ""
    """Flavor of the queue that the job was admitted to; empty while it waits."""
    reason: str = ""
    """Newest message of the queue or the operator."""
    nodes: tuple[str, ...] = ()
    """Nodes on which the job's pods run."""
    message: str = ""
    """What Kueue itself says, of which `reason` is in our words."""

    @property
    def ended(self) -> bool:
        return self.phase in {"complete", "failed"}

    @property
    def goes_on(self) -> bool:
        """Whether anything will happen to it unless somebody acts."""
        return not self.ended and self.phase != "stopped"


class NoSuchJobError(TrainyardError):
    """The job was deleted, or never submitted."""


class Jobs:
    """The jobs of a cluster."""

    def __init__(self, api: ApiServer) -> None:
        self._api = api

    def submit(self, body: Mapping[str, Any]) -> None:
        """Create the TrainJob; one of the same name is an error, never replaced.

        Raises:
            TrainyardError: the job exists, or the API server refused it.
            ApiError: the API server does not know the user (401).
        """
        name, namespace = body["metadata"]["name"], body["metadata"]["namespace"]
        try:
            self._api.create(path_of(TRAIN_JOBS, namespace), body)
        except ApiError as error:
            if error.status == HTTPStatus.UNAUTHORIZED:
                raise
            raise TrainyardError([_refused(error, name, namespace)], ExitCode.FAILED) from error

    def get(self, key: JobKey) -> dict[str, Any] | None:
        """Return the TrainJob, or None where there is none."""
        found: dict[str, Any] | None = self._api.find(key.path)
        return found

    def of_teams(self, namespaces: Sequence[str] = ()) -> list[JobKey]:
        """Return the keys of all jobs of teams that the user may see, the newest first.

        There are none where TrainJobs are not known yet.

        Members of a team may list their namespace's only: of `namespaces`, those that they may list are read.
        """
        hidden = {HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND}
        everywhere = path_of(TRAIN_JOBS)
        try:
            found = self._api.items(everywhere)
        except ApiError as error:
            if error.status == HTTPStatus.NOT_FOUND:
                check_served(self._api, everywhere)
                return []
            if error.status != HTTPStatus.FORBIDDEN or not namespaces:
                raise
            paths = [path_of(TRAIN_JOBS, namespace) for namespace in namespaces]
            found = [job for path in paths for job in self._api.items(path, empty_on=hidden)]
        newest_first = sorted(
            found, key=lambda job: job["metadata"].get("creationTimestamp", ""), reverse=True
        )
        return [
            JobKey(team, job["metadata"]["name"])
            for job in newest_first
            if (team := names.team_of(job["metadata"]["namespace"])) != job["metadata"]["namespace"]
        ]

    def delete(self, key: JobKey, *, uid: str = "") -> None:
        """Delete the job and its pods; its checkpoints are retained. Without such a job, do nothing.

        With `uid`, a newer job of the same name is not deleted: somebody else submitted it.
        """
        body = {"preconditions": {"uid": uid}} if uid else {}
        try:
            self._api.delete(key.path, {"propagationPolicy": "Foreground"}, body)
        except ApiError as error:
            if not uid or error.status != HTTPStatus.CONFLICT:
                raise

    def delete_and_wait(self, key: JobKey, *, uid: str = "") -> None:
        """Remove the job, and return when it is deleted; see `delete` for `uid`.

        Raises:
            TrainyardError: the job still exists after its pods' grace period.
        """
        graces = [int(pod["spec"].get("terminationGracePeriodSeconds", 30)) for pod in self.pods(key)]
        seconds = max(graces, default=0) + DELETION_SECONDS
        self.delete(key, uid=uid)
        deadline = time.monotonic() + seconds
        while (found := self.get(key)) is not None:
            if uid and found["metadata"]["uid"] != uid:
                return
            if time.monotonic() > deadline:
                raise TrainyardError([_lingers(key, seconds)])
            time.sleep(0.2)

    def annotate(self, key: JobKey, name: str, value: str) -> None:
        """Set one annotation of the job."""
        self._api.merge(key.path, {"metadata": {"annotations": {name: value}}})

    def state(self, key: JobKey) -> JobState:
        """Read the job, its workload and its pods once.

        Raises:
            NoSuchJobError: there is no such job.
        """
        job = self.get(key)
        if job is None:
            raise NoSuchJobError([_missing(key)])
        queued = self._api.items(path_of(WORKLOADS, key.namespace))
        now = with_reason(
            state_of(job, workload_of(queued, key) or {}, pods := self.pods(key)),
            pods,
            partial(self._api.items, events_of(key.namespace), empty_on={HTTPStatus.FORBIDDEN}),
        )
        if now.phase == "complete" and self._has_check_failed(key):
            return replace(now, reason=f"{now.reason} {_NO_SHELL}")
        if now.phase == "failed":
            return replace(now, reason=" ".join([now.reason, *self._messages_of_pods(key)]))
        return now

    def staging(self, dataset: str, team: str) -> Staging:
        """Look for the Job that stages a dataset, for all teams or for this one."""
        label, hidden = f"{names.DATASET_LABEL}={dataset}", False
        for namespace in (names.STORAGE_NAMESPACE, names.team_namespace(team)):
            try:
                path = f"/apis/batch/v1/namespaces/{namespace}/jobs"
                found = self._api.items(path, {"labelSelector": label})
            except ApiError as error:
                if error.status != HTTPStatus.FORBIDDEN:
                    raise
                found, hidden = [], True
            if found:
                job = max(found, key=lambda each: each["metadata"]["creationTimestamp"])
                return Staging(_how_far(job["status"]), f"job/{job['metadata']['name']} -n {namespace}")
        return Staging("hidden" if hidden else "unknown")

    def pods(self, key: JobKey) -> list[Object]:
        """Return the job's pods that exist now."""
        query = {"labelSelector": f"{JOB_SET_NAME}={key.name}"}
        return self._api.items(f"/api/v1/namespaces/{key.namespace}/pods", query)

    def node_pods(self, key: JobKey) -> list[NodePod]:
        """Return the newest pod of each node of a job, in the order of the nodes."""
        return newest_of_each_node(self.pods(key))

    def log_stream(self, pod: NodePod, *, since: str = "", tail: int | None = None) -> Iterator[bytes]:
        """Yield a pod's log as it comes, each line after its time, to the end of its container.

        Args:
            pod: pod whose log is read.
            since: a line's time; lines of earlier whole seconds are omitted.
            tail: number of last lines to begin with; default: all.

        Raises:
            ApiError: the user may not read it, or the pod does not exist.
            NoAnswer: the connection broke off.
        """
        query: dict[str, str | int] = {"container": pod.container, "follow": "true", "timestamps": "true"}
        if since:
            query["sinceTime"] = since
        if tail is not None:
            query["tailLines"] = tail
        return self._api.stream(f"/api/v1/namespaces/{pod.namespace}/pods/{pod.name}/log", query)

    def _messages_of_pods(self, key: JobKey) -> list[str]:
        """Return the termination messages of pods, or of the platform's check; each once.

        The kubelet's event of a failed check has no message; it is used where the check could not run.
        """
        ended = [
            status["state"]["terminated"]
            for pod in self.pods(key)
            for kind in ("initContainerStatuses", "containerStatuses")
            for status in pod["status"].get(kind) or ()
            if "terminated" in status.get("state", {})
        ]
        messages = [each["message"].strip() for each in ended if each.get("message")]
        if not messages and self._has_check_failed(key):
            messages = [_NO_SHELL]
        return list(dict.fromkeys(messages))

    def _has_check_failed(self, key: JobKey) -> bool:
        """Whether the kubelet ended a container since the platform's check in it failed or could not run."""
        query = {"fieldSelector": "reason=FailedPostStartHook"}
        events = self._api.items(events_of(key.namespace), query)
        pods = {pod["metadata"]["uid"] for pod in self.pods(key)}
        return any(event["involvedObject"].get("uid") in pods for event in events)


def events_of(namespace: str) -> str:
    """Return the path of a namespace's events."""
    return f"/api/v1/namespaces/{namespace}/events"


def with_reason(now: JobState, pods: Sequence[Object], events: Callable[[], Sequence[Object]]) -> JobState:
    """Return a state with why its pods do not run or have failed; `events` are read where they wait."""
    if now.phase not in {"admitted", "running", "failed"}:
        return now
    waits = now.phase == "admitted" and any(pod["status"].get("phase") == "Pending" for pod in pods)
    found = reason_of(pods, events() if waits else ())
    return now if found is None else replace(now, reason=f"{now.reason} {found}".strip())


def state_of(job: Mapping[str, Any], workload: Mapping[str, Any], pods: Sequence[Object]) -> JobState:
    """Return a job's state, from its object, its Workload (empty: none yet) and its pods."""
    running_on = [pod["spec"]["nodeName"] for pod in pods if pod["status"].get("phase") == "Running"]
    conditions = _true_conditions(job)
    for end in ("Complete", "Failed"):
        if end in conditions:
            return JobState(end.lower(), reason=conditions[end])
    nodes = tuple(sorted(running_on))
    if workload.get("spec", {}).get("active") is False:
        message = _true_conditions(workload).get("Evicted", "")
        if reason := cannot_start(workload):
            return JobState("stopped", reason=reason, nodes=nodes, message=message)
        phase = "pausing" if nodes else "paused"
        return JobState(phase, reason=in_our_words(message), nodes=nodes, message=message)
    flavor = _flavor(workload)
    if not flavor:
        message = waiting_message(workload)
        return JobState("queued", reason=waiting_reason(message), message=message)
    return JobState("running" if len(nodes) == _num_nodes(job) else "admitted", flavor, "", nodes)


def _how_far(status: Object) -> Literal["under way", "staged", "failed"]:
    if status.get("succeeded"):
        return "staged"
    ended = [each["type"] for each in status.get("conditions") or () if each["status"] == "True"]
    return "failed" if "Failed" in ended else "under way"


def _true_conditions(thing: Mapping[str, Any]) -> dict[str, str]:
    conditions = thing.get("status", {}).get("conditions", ())
    return {
        condition["type"]: condition.get("message", "")
        for condition in conditions
        if condition["status"] == "True"
    }


def _num_nodes(job: Mapping[str, Any]) -> int:
    return int(job["spec"].get("trainer", {}).get("numNodes", 1))


def _flavor(workload: Mapping[str, Any]) -> str:
    if "Admitted" not in _true_conditions(workload):
        return ""
    assignments = workload["status"]["admission"]["podSetAssignments"]
    return next((str(flavor) for item in assignments for flavor in item.get("flavors", {}).values()), "")


def waiting_message(workload: Mapping[str, Any]) -> str:
    """Return what Kueue says of a job that it has not admitted yet; empty where it has not looked at it."""
    for condition in workload.get("status", {}).get("conditions", ()):
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return ""


def waiting_reason(message: str) -> str:
    """Return in our words why the queue has not admitted a job yet."""
    return in_our_words(message) or "waiting for the queue"


def _missing(key: JobKey) -> Problem:
    return Problem(
        path=f"job {key.name}",
        got=f"no such job in {key.namespace}",
        allowed="a submitted job that has not been deleted",
        fix="see `trainyard jobs`: it may have been deleted",
    )


def _lingers(key: JobKey, seconds: float) -> Problem:
    return Problem(
        path=f"job {key.name}",
        got=f"still exists {seconds:.0f} s after it was deleted",
        allowed="a job whose pods end within their grace period",
        fix=f"see why: `kubectl describe trainjob -n {key.namespace} {key.name}`",
    )


def _refused(error: ApiError, name: str, namespace: str) -> Problem:
    if error.status == HTTPStatus.CONFLICT:
        return Problem(
            path=f"job {name}",
            got=f"{namespace} has a job with that name",
            allowed="a job name that is unique in the team",
            fix=f"follow it with `trainyard logs {name}`, or delete it first: `trainyard cancel {name}`",
        )
    return Problem(
        path=f"job {name}",
        got=f"the API server refused it: {error.status}: {error.message}",
        allowed="what the runtime and the queue accept",
        fix="correct what it names; nothing was submitted",
    )
