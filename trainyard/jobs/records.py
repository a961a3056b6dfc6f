"""`Jobs`: submits, lists, reads and deletes training jobs through the Kubernetes API; `manifest` renders a
TrainJob.

A job that `Jobs` submits is outside of the engine's state, since queues change its spec while it runs.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import catalog
from catalog import fabric_lint
from infra.clients.kubernetes import ApiError, ApiServer, Object
from infra.clients.kubernetes.api import Kind, path_of
from infra.common import names
from infra.errors import ExitCode, Problem, TrainyardError
from infra.stackfile.dataset import DATA_PATH
from infra.stackfile.job import EXIT_TIMEOUT, JobSpec
from infra.stackfile.share import Share, canonical, share_of
from trainyard.jobs import manifest as train_job
from trainyard.jobs.manifest import ORIGIN, PORTS, JobDataset, Origin
from trainyard.jobs.node_pods import NodePod, newest_of_each_node
from trainyard_train.contract import exit_seconds

if TYPE_CHECKING:
    from infra.stackfile import Stack

GROUP, VERSION = "trainer.kubeflow.org", "v1alpha1"
TRAIN_JOBS: Kind = (GROUP, VERSION, "trainjobs")
WORKLOADS: Kind = ("kueue.x-k8s.io", "v1beta2", "workloads")
CHECKPOINTS = "/mnt/checkpoints"
"""Mount path of the team's checkpoint volume in every training runtime."""
RUN, SPEC, PREEMPTIONS = "trainyard.dev/run", "trainyard.dev/spec", "trainyard.dev/losses"
"""Annotations of a TrainJob: its run, the hash of its spec, and the number of scheduled preemptions so
far."""
JOB_SET_NAME = "jobset.sigs.k8s.io/jobset-name"
"""Label of a job's pods with the job's name."""
QUEUE = "kueue.x-k8s.io/queue-name"
"""Label of a TrainJob with the local queue that it waits in."""
JOB = "trainyard.dev/job"
"""Annotation with the job's spec as JSON, from which `trainyard rerun` starts it again."""
SOURCES = "/opt/trainyard/src"
"""Path of the training package in the training image."""
BAD_REQUEST, UNAUTHORIZED, FORBIDDEN, NOT_FOUND, CONFLICT = 400, 401, 403, 404, 409
_NO_SHELL = (
    "Its containers were killed as they started (FailedPostStartHook): the platform's check of the fabric"
    " could not run, since their image has no /bin/sh. Put one into it, or take the check off the runtime:"
    " unchecked_runtimes in the stack file."
)
DELETION_SECONDS = 30.0
"""Maximum seconds to wait for a deleted job, beyond its pods' grace period."""


@dataclass(frozen=True)
class JobKey:
    """A job's name in its team's namespace."""

    team: str
    name: str

    @property
    def namespace(self) -> str:
        return names.team_namespace(self.team)


@dataclass(frozen=True)
class JobPlacement:
    """The placement of a job."""

    local_queue: str
    pools: tuple[str, ...] = ()
    """Pools that the job may use; empty: all of its queue's."""


@dataclass(frozen=True)
class Checkout:
    """Record of a job's origin, besides its manifest."""

    image: str = ""
    """Image of the job's runtime."""
    commit: str = ""
    """Commit that is checked out in the job's folder."""
    dirty: bool = False
    """Whether files in the folder differ from the commit."""


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
    `paused`, `complete` or `failed`."""
    flavor: str = ""
    """Flavor of the queue that the job was admitted to; empty while it waits."""
    reason: str = ""
    """Newest message of the queue or the operator."""
    nodes: tuple[str, ...] = ()
    """Nodes on which the job's pods run."""

    @property
    def ended(self) -> bool:
        return self.phase in {"complete", "failed"}


def manifest(
    job: JobSpec,
    run: str,
    datasets: Sequence[JobDataset] = (),
    placement: JobPlacement | None = None,
    *,
    share: Share | None = None,
    checkout: Checkout | None = None,
) -> dict[str, Any]:
    """Render the TrainJob; `run` names the folder of this run on the checkpoint volume.

    Args:
        job: the job, with the name of its runtime.
        run: name of this run's folder.
        datasets: datasets of the stack, those that the job reads among them.
        placement: queue and pools of the job; None: the team's first queue, and any of its pools.
        share: CPUs and memory per accelerator; default: those of an unknown machine type.
        checkout: origin of the job's code and image, as far as it is known.
    """
    placement = placement or JobPlacement(job.team)
    asked = job.model_dump_json(exclude={"interruptions"}, exclude_defaults=True)
    read = [each for each in datasets if each.name in {job.dataset, *job.datasets}]
    job = with_data(job, datasets)
    run_dir = f"{CHECKPOINTS}/{job.name}/{run}"
    started = _started(job, run_dir)
    hashes = {each.name: each.digest for each in read}
    words = job.command or (*started["command"], *started["args"])
    found = checkout or Checkout()
    image = job.image or found.image
    origin = Origin(image, words, hashes, job.code or "", found.commit, dirty=found.dirty)
    spec = hashlib.sha256((asked + "".join(hashes.values())).encode()).hexdigest()[:12]
    labels = {QUEUE: placement.local_queue, "kueue.x-k8s.io/priority-class": job.priority}
    limit = {"activeDeadlineSeconds": job.time_limit_minutes * 60} if job.time_limit_minutes else {}
    patches = [
        *([_only_on(placement.pools, job)] if placement.pools else []),
        *filter(None, [train_job.patch(job)]),
    ]
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "TrainJob",
        "metadata": {
            "name": job.name,
            "namespace": JobKey(job.team, job.name).namespace,
            "labels": labels,
            "annotations": {RUN: run, SPEC: spec, JOB: asked, **_annotations(job, origin)},
        },
        "spec": {
            "runtimeRef": {"name": job.runtime},
            **limit,
            **({"runtimePatches": patches} if patches else {}),
            "trainer": {
                "numNodes": job.num_nodes,
                "numProcPerNode": _ranks_of_torchrun(job),
                **({"image": job.image} if job.image else {}),
                **started,
                "env": train_job.environment(job, run_dir, origin, datasets),
                "resourcesPerNode": _resources(job, share or Share()),
            },
        },
    }


def _annotations(job: JobSpec, origin: Origin) -> dict[str, str]:
    """Annotations with the job's origin and the ports that it serves."""
    ports = {PORTS: ",".join(f"{name}={port}" for name, port in job.ports.items())} if job.ports else {}
    return {ORIGIN: origin.as_text(), **ports}


def _ranks_of_torchrun(job: JobSpec) -> int:
    """Number of ranks on each node, those of the job's own torchrun included."""
    started_by_itself = job.command is not None and job.processes_per_node is None
    return job.accelerators_per_node if started_by_itself else job.ranks_per_node


def _started(job: JobSpec, run_dir: str) -> dict[str, list[str]]:
    """Command of the container: the job's own, or the training package with a configuration."""
    if job.command is not None:
        return {"command": train_job.command_of(job)}
    timeout = {EXIT_TIMEOUT: f"{exit_seconds(job.grace_seconds):g}"} if job.grace_seconds else {}
    restarts = {"restarts": job.restarts} if job.restarts is not None else {}
    settings = {**job.overrides, **timeout, **restarts, "run_dir": run_dir}
    overrides = [f"--set={key}={_yaml(value)}" for key, value in settings.items()]
    config = f"--config={SOURCES}/training/configs/{job.config}.yaml"
    return {"command": _command(job), "args": [config, *overrides]}


def _resources(job: JobSpec, share: Share) -> dict[str, Any]:
    """Resources of a node and its fabric: Trainer merges them with the runtime's, Kueue counts only these."""
    fabric = catalog.fabric(job.runtime.partition("-")[2])
    devices = {fabric.accelerator_resource: str(job.accelerators_per_node)} | {
        name: canonical(str(amount)) for name, amount in fabric.pod_resources.items()
    }
    requests, limits = train_job.resources(job, share.requests(job.accelerators_per_node))
    asked_for = [{"name": name} for name in fabric_lint.claims(fabric.name)]
    claims = {"claims": asked_for} if asked_for else {}
    return {"requests": {**requests, **devices}, "limits": {**limits, **devices}, **claims}


def _command(job: JobSpec) -> list[str]:
    """Command that starts the ranks: in each pod those of its node; in an MPI job's launcher all ranks."""
    ranks = ["python3", "-m", job.module]
    if train_job.is_mpi(job):
        ranks = ["mpirun", "-n", str(job.num_nodes * job.ranks_per_node), *ranks]
    return [*train_job.around(job), *ranks]


def with_data(job: JobSpec, datasets: Sequence[JobDataset]) -> JobSpec:
    """Return the job with the path of its dataset among its settings."""
    if job.dataset is None:
        return job
    path = next(each.path for each in datasets if each.name == job.dataset)
    overrides = {**job.overrides, DATA_PATH: f"{names.DATASETS_MOUNT}/{path}"}
    return job.model_copy(update={"dataset": None, "overrides": overrides})


def share_for(job: JobSpec, stack: Stack) -> Share:
    """Return the CPUs and memory that fit with each accelerator on every pool of the job's fabric."""
    return share_of(job.runtime.partition("-")[2], stack.pools)


def placement_of(stack: Stack) -> JobPlacement | None:
    """Return where the stack's job is to go, where that is not any pool of its team's first queue."""
    if stack.job is None or not stack.job.queue:
        return None
    team = next(team for team in stack.teams if team.name == stack.job.team)
    flavors = next(queue for queue in stack.queues if queue.name == stack.job.queue).flavors
    placed = stack.placement
    pools = placed.pools if placed and len(placed.pools) < len(flavors) else ()
    return JobPlacement(team.local_queue(stack.job.queue), pools)


def _only_on(pools: Sequence[str], job: JobSpec) -> dict[str, Any]:
    """Keep all pods of the job to some pools; Kueue passes over the flavors that these rule out."""
    match = {"key": names.POOL_LABEL, "operator": "In", "values": list(pools)}
    terms = {"nodeSelectorTerms": [{"matchExpressions": [match]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return train_job.laid_over("trainyard.dev/placement", job, {"affinity": affinity})


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


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
            if error.status == UNAUTHORIZED:
                raise
            raise TrainyardError([_refused(error, name, namespace)], ExitCode.FAILED) from error

    def get(self, key: JobKey) -> dict[str, Any] | None:
        """Return the TrainJob, or None where there is none."""
        found: dict[str, Any] | None = self._api.find(_path(key))
        return found

    def all(self, namespaces: Sequence[str] = ()) -> list[dict[str, Any]]:
        """Return every TrainJob of every team; none where the cluster does not know TrainJobs yet.

        Members of a team may list their namespace's only: of `namespaces`, those that they may list are read.
        """
        try:
            return self._api.items(path_of(TRAIN_JOBS))
        except ApiError as error:
            if error.status == NOT_FOUND:
                return []
            if error.status != FORBIDDEN or not namespaces:
                raise
            return [
                job
                for namespace in namespaces
                for job in self._api.items(path_of(TRAIN_JOBS, namespace), empty_on={FORBIDDEN, NOT_FOUND})
            ]

    def of_teams(self, namespaces: Sequence[str] = ()) -> list[JobKey]:
        """Return the keys of all jobs of teams that the user may see."""
        found = [(job["metadata"]["namespace"], job["metadata"]["name"]) for job in self.all(namespaces)]
        return [
            JobKey(names.team_of(namespace), name)
            for namespace, name in found
            if names.team_of(namespace) != namespace
        ]

    def delete(self, key: JobKey, *, uid: str = "") -> None:
        """Delete the job and its pods; its checkpoints are retained. Without such a job, do nothing.

        With `uid`, a newer job of the same name is not deleted: somebody else submitted it.
        """
        body = {"preconditions": {"uid": uid}} if uid else {}
        try:
            self._api.delete(_path(key), {"propagationPolicy": "Foreground"}, body)
        except ApiError as error:
            if not uid or error.status != CONFLICT:
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
        self._api.merge(_path(key), {"metadata": {"annotations": {name: value}}})

    def state(self, key: JobKey) -> JobState:
        """Read the job, its workload and its pods once.

        Raises:
            TrainyardError: there is no such job.
        """
        job = self.get(key)
        if job is None:
            raise TrainyardError([_missing(key)])
        nodes = [pod["spec"]["nodeName"] for pod in self.pods(key) if pod["status"].get("phase") == "Running"]
        now = state_of(job, self._workload(key), nodes)
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
                if error.status != FORBIDDEN:
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
        events = self._api.items(f"/api/v1/namespaces/{key.namespace}/events", query)
        pods = {pod["metadata"]["uid"] for pod in self.pods(key)}
        return any(event["involvedObject"].get("uid") in pods for event in events)

    def _workload(self, key: JobKey) -> Mapping[str, Any]:
        found = self._api.items(path_of(WORKLOADS, key.namespace))
        owned = [
            item
            for item in found
            for owner in item["metadata"].get("ownerReferences", ())
            if owner["kind"] == "TrainJob" and owner["name"] == key.name
        ]
        return owned[0] if owned else {}


def state_of(job: Mapping[str, Any], workload: Mapping[str, Any], running_on: Sequence[str]) -> JobState:
    """Return a job's state, from its object, its Workload (empty: none yet) and the nodes on which its pods
    run.
    """
    conditions = _true_conditions(job)
    for end in ("Complete", "Failed"):
        if end in conditions:
            return JobState(end.lower(), reason=conditions[end])
    nodes = tuple(sorted(running_on))
    if workload.get("spec", {}).get("active") is False:
        reason = _true_conditions(workload).get("Evicted", "")
        return JobState("pausing" if nodes else "paused", reason=reason, nodes=nodes)
    flavor = _flavor(workload)
    if not flavor:
        return JobState("queued", reason=waiting_reason(workload))
    return JobState("running" if len(nodes) == _num_nodes(job) else "admitted", flavor, "", nodes)


def _path(key: JobKey) -> str:
    return path_of(TRAIN_JOBS, key.namespace, key.name)


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


def waiting_reason(workload: Mapping[str, Any]) -> str:
    """Return why the queue has not admitted a job yet."""
    for condition in workload.get("status", {}).get("conditions", ()):
        if condition["type"] == "QuotaReserved" and condition["status"] == "False":
            return str(condition.get("message", ""))
    return "waiting for the queue"


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
    if error.status == CONFLICT:
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
