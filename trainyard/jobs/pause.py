"""`trainyard pause` and `resume`: suspend a job, which first gets time to save a checkpoint, and put it back
into its queue. `pause` reports whether every pod has saved.

Kueue suspends the job as at a preemption: after `spec.active: false` is set on its Workload, its pods get
SIGTERM and their grace period to commit a checkpoint. Each pod's exit code shows whether it committed one.
"""

import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from infra.clients.kubernetes import ApiError, NoAnswer, Object
from infra.clients.kubernetes.api import path_of
from infra.errors import InputError, Problem, TrainyardError
from trainyard.jobs.cluster import MemberCluster, key_of
from trainyard.jobs.key import WORKLOADS, JobKey
from trainyard.jobs.state import Jobs
from trainyard.stack.session import Session
from trainyard_train.contract import EXIT_PREEMPTED

MARGIN_SECONDS = 60.0
"""Seconds for the queue, the operators and the kubelets, beyond the pods' grace period."""
LABEL = "jobset.sigs.k8s.io/jobset-name"


def pause_job(session: Session, name: str) -> None:
    """Let the job commit a checkpoint and free its quota; return when its pods have ended.

    Raises:
        InputError: there is no such job, it has ended, or no queue holds it.
        TrainyardError: pods are still there after their grace period.
    """
    key = key_of(session, name)
    cluster = MemberCluster(session)
    workload = _workload(session, cluster, key, "pause")
    if workload["spec"].get("active") is False:
        session.console.print(
            f"{key.name} is paused already; {_next_step(key)}", highlight=False, soft_wrap=True
        )
        return
    pods = [pod for pod in cluster.pods(key.namespace, key.name) if pod["status"].get("phase") == "Running"]
    first_log = _Follower(cluster, pods[0]) if pods else None
    ends = _Ends(cluster, key, pods)
    _set_active(cluster, key, workload, active=False)
    with session.progress.task(f"pause {key.name}"):
        codes = ends.wait(_grace(pods) + MARGIN_SECONDS)
    for line in first_log.lines() if first_log else ():
        session.progress.log(f"  node   {line}")
    session.console.print(
        f"{key.name} is paused: {outcome(codes)}; {_next_step(key)}", highlight=False, soft_wrap=True
    )


def resume_job(session: Session, name: str) -> None:
    """Put a paused job back into its queue; it continues from its newest checkpoint.

    Raises:
        InputError: there is no such job, it has ended, or no queue holds it.
    """
    key = key_of(session, name)
    cluster = MemberCluster(session)
    workload = _workload(session, cluster, key, "resume")
    if workload["spec"].get("active") is not False:
        session.console.print(f"{key.name} is not paused", highlight=False)
        return
    _set_active(cluster, key, workload, active=True)
    follow = f"see `trainyard job queue`, and follow it with `trainyard logs -f {key.name}`"
    session.console.print(f"{key.name} is in its queue again; {follow}", highlight=False, soft_wrap=True)


def outcome(codes: Mapping[str, int | None]) -> str:
    """Describe the result of a pause, by the exit code of each pod; None where it is unknown."""
    if not codes:
        return "no pod ran"
    if set(codes.values()) == {EXIT_PREEMPTED}:
        return f"its {len(codes)} pods exited with their work saved"
    others = ", ".join(
        f"{pod} {'ended unobserved' if code is None else f'exited with {code}'}"
        for pod, code in sorted(codes.items())
        if code != EXIT_PREEMPTED
    )
    return f"not all pods saved their work ({others}): it resumes from its last committed checkpoint"


def _workload(session: Session, cluster: MemberCluster, key: JobKey, verb: str) -> Object:
    found, state = cluster.workload(key), Jobs(session.api).state(key)
    if found is None or state.ended:
        got = f"it is {state.phase}" if state.ended else "it is in no queue"
        fix = f"see `trainyard jobs`, and {verb} a job that waits, runs or is paused"
        raise InputError([Problem(f"job {key.name}", got, "a job in a queue", fix)])
    return found


def _set_active(cluster: MemberCluster, key: JobKey, workload: Object, *, active: bool) -> None:
    path = path_of(WORKLOADS, key.namespace, workload["metadata"]["name"])
    cluster.api.merge(path, {"spec": {"active": active}})


def _grace(pods: list[Object]) -> float:
    return max((float(pod["spec"].get("terminationGracePeriodSeconds", 30)) for pod in pods), default=0.0)


def _silence(pods: list[Object]) -> float:
    """Seconds for which a connection may be silent, since pods shut down."""
    return _grace(pods) + MARGIN_SECONDS


def _next_step(key: JobKey) -> str:
    return f"to continue: trainyard resume {key.name}"


class _Ends:
    """The exit code of each pod, which is deleted soon after its end: so it is watched from before."""

    def __init__(self, cluster: MemberCluster, key: JobKey, pods: list[Object]) -> None:
        self._codes: dict[str, int | None] = {pod["metadata"]["name"]: None for pod in pods}
        self._left = set(self._codes)
        self._cluster, self._key, self._silence = cluster, key, _silence(pods)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._stop = threading.Event()
        if pods:
            self._thread.start()

    def wait(self, seconds: float) -> dict[str, int | None]:
        """Return the codes once all pods have ended.

        Raises:
            TrainyardError: pods have not ended in time.
        """
        deadline = time.monotonic() + seconds
        while self._left and time.monotonic() < deadline:
            time.sleep(0.2)
            if not self._thread.is_alive():
                self._look()
        self._stop.set()
        if self._left:
            raise TrainyardError([_lingers(self._key, sorted(self._left), seconds)])
        return self._codes

    def _watch(self) -> None:
        path = f"/api/v1/namespaces/{self._key.namespace}/pods"
        query = {"labelSelector": f"{LABEL}={self._key.name}"}
        with suppress(ApiError, NoAnswer):  # the periodic list also finds the end
            for event in self._cluster.api.watch(path, query, silence=self._silence):
                self._note(event["object"], deleted=event["type"] == "DELETED")
                if self._stop.is_set() or not self._left:
                    return

    def _look(self) -> None:
        pods = {
            pod["metadata"]["name"]: pod for pod in self._cluster.pods(self._key.namespace, self._key.name)
        }
        for name in list(self._left):
            if name in pods:
                self._note(pods[name], deleted=False)
            else:
                self._left.discard(name)

    def _note(self, pod: Mapping[str, Any], *, deleted: bool) -> None:
        name = pod["metadata"]["name"]
        if name not in self._left:
            return
        ended = [
            each["state"]["terminated"]["exitCode"]
            for each in pod["status"].get("containerStatuses", ())
            if "terminated" in each.get("state", {})
        ]
        if ended:
            self._codes[name] = int(ended[0])
        if ended or deleted:
            self._left.discard(name)


class _Follower:
    """A pod's log from now to its end, read in the background: it is deleted with the pod."""

    def __init__(self, cluster: MemberCluster, pod: Object) -> None:
        self._text = b""
        about = pod["metadata"]
        path = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}/log"
        self._stream = cluster.api.stream(path, {"follow": "true", "tailLines": 0}, silence=_silence([pod]))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        with suppress(ApiError, NoAnswer):
            for chunk in self._stream:
                self._text += chunk

    def lines(self) -> list[str]:
        """Return the log lines of its shutdown, at most the last five."""
        self._thread.join(2)
        return self._text.decode(errors="replace").splitlines()[-5:]


def _lingers(key: JobKey, pods: list[str], seconds: float) -> Problem:
    return Problem(
        path=f"job {key.name}",
        got=f"{', '.join(pods)} still exist {seconds:.0f} s after the pause",
        allowed="pods that end within their grace period",
        fix=f"see why: kubectl describe pod -n {key.namespace} {pods[0]}",
    )
