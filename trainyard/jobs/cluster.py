"""`MemberCluster`: finds the namespaces of a member's teams, and reads Kubernetes objects with the member's
rights. Objects that the member may not see are omitted.
"""

from collections.abc import Sequence
from functools import cached_property
from http import HTTPStatus
from types import MappingProxyType

from infra.clients.kubernetes import ApiError, Object
from infra.clients.kubernetes.api import Kind, Query, path_of
from infra.common import names
from infra.errors import InputError, Problem
from trainyard.jobs.key import CLUSTER_QUEUES, FLAVORS, JOB_SET_NAME, WORKLOADS, JobKey
from trainyard.jobs.served import check_served
from trainyard.jobs.state import Jobs, events_of
from trainyard.jobs.workloads import workload_of
from trainyard.stack.session import Session

_INVISIBLE = frozenset({HTTPStatus.FORBIDDEN, HTTPStatus.NOT_FOUND})


class MemberCluster:
    """Reads what its user may read, and omits the rest."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self.api = session.api

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
        query = {"labelSelector": names.TEAM_LABEL}
        found = self.api.items("/api/v1/namespaces", query, empty_on={HTTPStatus.FORBIDDEN})
        return sorted(str(each["metadata"]["name"]) for each in found)

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
        """Return all objects of a kind; none where the user may not list them, or the cluster has no such.

        Raises:
            TrainyardError: the cluster serves the kind in other versions only.
        """
        return self._visible(path_of(kind, namespace))

    def cluster_queues(self) -> dict[str, Object]:
        """Return the queues of the cluster by name; none where the user may not list them."""
        return {item["metadata"]["name"]: item for item in self.cluster_objects(CLUSTER_QUEUES)}

    def flavors(self) -> dict[str, Object]:
        """Return the flavors by name, which is that of their pool; none where the user may not list them."""
        return {item["metadata"]["name"]: item for item in self.cluster_objects(FLAVORS)}

    def cluster_objects(self, kind: Kind) -> list[Object]:
        """Return all objects of a kind that is of the cluster; none where the user may not list them."""
        return self._visible(path_of(kind))

    def pods(self, namespace: str, job: str = "") -> list[Object]:
        """Return the pods of a job, or of all jobs of a namespace."""
        label = f"{JOB_SET_NAME}={job}" if job else JOB_SET_NAME
        return self._visible(f"/api/v1/namespaces/{namespace}/pods", {"labelSelector": label})

    def last_lines(self, namespace: str, pod: str, container: str, number: int) -> str:
        """Return the end of a pod's log; empty where the user may not read it, or the pod does not exist."""
        try:
            path = f"/api/v1/namespaces/{namespace}/pods/{pod}/log"
            log = self.api.read(path, {"container": container, "tailLines": number})
        except ApiError as error:
            if error.status in {*_INVISIBLE, HTTPStatus.BAD_REQUEST}:  # 400: the container has not started
                return ""
            raise
        return log.decode(errors="replace")

    def events(self, namespace: str) -> list[Object]:
        """Return the events of a namespace."""
        return self._visible(events_of(namespace))

    def _visible(self, path: str, query: Query = MappingProxyType({})) -> list[Object]:
        try:
            return self.api.items(path, query, empty_on={HTTPStatus.FORBIDDEN})
        except ApiError as error:
            if error.status != HTTPStatus.NOT_FOUND:
                raise
            check_served(self.api, path)
            return []

    def workload(self, key: JobKey) -> Object | None:
        """Return the queue's record of a job; None where the queue has none."""
        return workload_of(self.objects(WORKLOADS, key.namespace), key)


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


def key_of(session: Session, name: str) -> JobKey:
    """Return the key of the job of that name; without a name, of the newest.

    Raises:
        InputError: no team that the user sees has such a job, or several have.
    """
    seen = Jobs(session.api).of_teams(session.namespaces)
    known = [key for key in seen if session.team in {"", key.team}]
    found = [key for key in known if key.name == name] if name else known[:1]
    if len(found) != 1:
        raise InputError([_ambiguous(name, found) if found else _unknown(name, known)])
    return found[0]


def _unknown(name: str, known: list[JobKey]) -> Problem:
    others = ", ".join(sorted(key.name for key in known)) or "there is none"
    return Problem(
        "job", name or "nothing", f"a submitted job that has not been deleted: {others}", "name one of these"
    )


def _ambiguous(name: str, found: list[JobKey]) -> Problem:
    teams = ", ".join(sorted(key.team for key in found))
    return Problem("job", f"{name}, which {teams} have", "a name that one team has", "name it: --team TEAM")
