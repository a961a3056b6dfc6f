"""`MemberCluster`: finds the namespaces of a member's teams, and reads Kubernetes objects with the member's
rights. Objects that the member may not see are omitted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any

from kubernetes import client
from kubernetes.client.exceptions import ApiException

from infra.clients import plain
from infra.common import names
from infra.errors import InputError, Problem
from trainyard.jobs.records import BAD_REQUEST, FORBIDDEN, NOT_FOUND, JobKey
from trainyard.stack.session import Session

Object = Mapping[str, Any]
Kind = tuple[str, str, str]
TRAIN_JOBS: Kind = ("trainer.kubeflow.org", "v1alpha1", "trainjobs")
JOB_SETS: Kind = ("jobset.x-k8s.io", "v1alpha2", "jobsets")
WORKLOADS: Kind = ("kueue.x-k8s.io", "v1beta2", "workloads")
LOCAL_QUEUES: Kind = ("kueue.x-k8s.io", "v1beta2", "localqueues")
FLAVORS: Kind = ("kueue.x-k8s.io", "v1beta2", "resourceflavors")
PRIORITIES: Kind = ("kueue.x-k8s.io", "v1beta2", "workloadpriorityclasses")
RUNTIMES: Kind = ("trainer.kubeflow.org", "v1alpha1", "clustertrainingruntimes")
CLUSTER_QUEUES: Kind = ("kueue.x-k8s.io", "v1beta2", "clusterqueues")
"""API group, version and resource of cluster queues."""
_INVISIBLE = frozenset({FORBIDDEN, NOT_FOUND})


class MemberCluster:
    """Reads what its user may read, and omits the rest."""

    def __init__(self, session: Session) -> None:
        self._session = session
        # The client's type hints are wrong in places, so its objects are read as plain data.
        self.custom: Any = plain.CustomObjects(session.api)

    @cached_property
    def core(self) -> Any:  # noqa: ANN401 -- the client's own
        """The client's core API, which is slow to import: use it only for calls other than lists and logs."""
        return client.CoreV1Api(self._session.api)

    @cached_property
    def namespaces(self) -> list[str]:
        """Namespaces of the teams that the user may look into.

        Raises:
            InputError: no label and no context names them, or the named team does not exist.
        """
        known = self._labelled_namespaces()
        if (team := self._session.team) and known and names.team_namespace(team) not in known:
            raise InputError([Problem("--team", team, _teams(known), "name one of these")])
        found = self._session.namespaces if team else known or self._session.namespaces
        if not found:
            raise InputError([_no_team(self._session)])
        return found

    def _labelled_namespaces(self) -> list[str]:
        """Namespaces of all teams of the cluster, which an administrator may list."""
        try:
            answer = plain.get(self._session.api, "/api/v1/namespaces", {"labelSelector": names.TEAM_LABEL})
        except ApiException as error:
            if error.status == FORBIDDEN:
                return []
            raise
        return sorted(str(each["metadata"]["name"]) for each in answer["items"])

    @property
    def namespace(self) -> str:
        """The namespace of the named team, or of the only one that there is.

        Raises:
            InputError: there are several.
        """
        if len(self.namespaces) != 1:
            allowed = f"one of {_teams(self.namespaces)}"
            raise InputError([Problem("--team", "left out", allowed, "name the team: --team NAME")])
        return self.namespaces[0]

    def objects(self, kind: Kind, namespace: str) -> list[Object]:
        """Return all objects of a kind; none where the user may not list them, or the cluster has no such."""
        group, version, plural = kind
        try:
            found = self.custom.list_namespaced_custom_object(group, version, namespace, plural)
        except ApiException as error:
            if error.status in _INVISIBLE:
                return []
            raise
        items: list[Object] = found["items"]
        return items

    def cluster_queues(self) -> dict[str, Object]:
        """Return the queues of the cluster by name; none where the user may not list them."""
        return {item["metadata"]["name"]: item for item in self.cluster_objects(CLUSTER_QUEUES)}

    def flavors(self) -> dict[str, Object]:
        """Return the flavors by name, which is that of their pool; none where the user may not list them."""
        return {item["metadata"]["name"]: item for item in self.cluster_objects(FLAVORS)}

    def cluster_objects(self, kind: Kind) -> list[Object]:
        """Return all objects of a kind that is of the cluster; none where the user may not list them."""
        try:
            items: list[Object] = self.custom.list_cluster_custom_object(*kind)["items"]
        except ApiException as error:
            if error.status in _INVISIBLE:
                return []
            raise
        return items

    def pods(self, namespace: str, job: str = "") -> list[Object]:
        """Return the pods of a job, or of all jobs of a namespace."""
        label = "jobset.sigs.k8s.io/jobset-name"
        return self._core_list("pods", namespace, labelSelector=f"{label}={job}" if job else label)

    def labelled_pods(self, namespace: str, label: str) -> list[Object]:
        """Return the pods of a namespace with a label, `name=value`."""
        return self._core_list("pods", namespace, labelSelector=label)

    def last_lines(self, namespace: str, pod: str, container: str, number: int) -> str:
        """Return the end of a pod's log; empty where the user may not read it, or the pod does not exist."""
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
            log = plain.read(self._session.api, path, {"container": container, "tailLines": number})
        except ApiException as error:
            if error.status in {*_INVISIBLE, BAD_REQUEST}:  # BAD_REQUEST: the container has not started
                return ""
            raise
        return log.decode(errors="replace")

    def events(self, namespace: str) -> list[Object]:
        """Return the events of a namespace."""
        return self._core_list("events", namespace)

    def _core_list(self, kind: str, namespace: str, **query: str) -> list[Object]:
        path = f"/api/v1/namespaces/{namespace}/{kind}"
        try:
            items: list[Object] = plain.get(self._session.api, path, query)["items"]
        except ApiException as error:
            if error.status in _INVISIBLE:
                return []
            raise
        return items

    def workload(self, key: JobKey) -> Object | None:
        """Return the queue's record of a job; None where the queue has none."""
        return next(
            (
                each
                for each in self.objects(WORKLOADS, key.namespace)
                if owner(each) == ("TrainJob", key.name)
            ),
            None,
        )


def owner(item: Object) -> tuple[str, str]:
    """Return kind and name of the object that a controller made this one for."""
    owners = item["metadata"].get("ownerReferences") or [{"kind": "", "name": ""}]
    return owners[0]["kind"], owners[0]["name"]


def _teams(namespaces: Sequence[str]) -> str:
    return ", ".join(map(names.team_of, namespaces))


def _no_team(session: Session) -> Problem:
    context = f"context {session.context}" if session.context else f"stack {session.stack_name}"
    return Problem(
        path="--context",
        got=f"{context} names no namespace of a team",
        allowed=f"a context with the namespace of your team ({names.team_namespace('NAME')})",
        fix="set it: kubectl config set-context CONTEXT --namespace " + names.team_namespace("NAME"),
    )
