"""RBAC of teams: roles for members and viewers, bound to the teams' groups in each team's namespace, and
rights to list the cluster's queues and runtimes and to read the team's kept logs.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces

_API = "rbac.authorization.k8s.io/v1"
_LOOK = ("get", "list", "watch")
_SUBMIT = ("create", "delete")
"""Verbs for submitting jobs. Changes are not among them: queues retain what they have admitted."""
MEMBER, VIEWER = "trainyard-team-member", "trainyard-team-viewer"
CATALOGUE = "trainyard-teams"
"""Name of the cluster role that lets members and viewers of all teams list what a job may name."""
_SEEN: Mapping[str, Sequence[str]] = {
    "": ("events", "limitranges", "persistentvolumeclaims", "pods", "pods/log", "resourcequotas"),
    "events.k8s.io": ("events",),
    "kueue.x-k8s.io": ("localqueues", "workloads"),
    "networking.k8s.io": ("networkpolicies",),
    # The team's jobs, each with its position in the whole queue.
    "visibility.kueue.x-k8s.io": ("localqueues/pendingworkloads",),
}
"""API group → resources that members and viewers may read, without Secrets."""
_WRITTEN: Mapping[str, Sequence[str]] = {"": ("secrets",)}
"""API group → resources that members may only create: other verbs return the content of a Secret."""
_ENTERED: Mapping[str, Sequence[str]] = {"": ("pods/exec", "pods/portforward")}
"""API group → subresources for exec and port-forward: over WebSocket kubectl needs `get`, and also `create`
since Kubernetes 1.35."""
_PAUSED: Mapping[str, Sequence[str]] = {"kueue.x-k8s.io": ("workloads",)}
"""API group → resources with which members pause a job (`spec.active`); admission refuses other changes."""
_CATALOGUE: Mapping[str, Sequence[str]] = {
    # Quotas and aggregated usage: they name no other team's jobs.
    "kueue.x-k8s.io": ("clusterqueues", "resourceflavors", "topologies", "workloadpriorityclasses"),
    "trainer.kubeflow.org": ("clustertrainingruntimes",),
}


class RoleBindings(Layer):
    """Roles for members and viewers, bound in each team's namespace to the groups that the stack file names;
    one cluster-wide role to list queues and runtimes; access to the team's kept logs.
    """

    def __init__(self, context: PlatformContext, namespaces: Namespaces, parent: pulumi.Resource) -> None:
        teams = {team.name: list(team.groups) for team in context.stack.teams}
        super().__init__(context, "people", {"teams": teams}, parent)
        jobs = job_resources(context)
        seen = {**_SEEN, **jobs}
        roles = [
            self.add(_role(MEMBER, [*_rules(seen, _LOOK), *_submitting(jobs), *_pausing(context)])),
            self.add(_role(VIEWER, _rules(seen, _LOOK))),
        ]
        every_group = sorted(
            {self._called(context, group) for team in context.stack.teams for group in team.groups}
        )
        catalogue = self.add(_role(CATALOGUE, _rules(_catalogue(context), _LOOK)))
        self.add(_cluster_binding(CATALOGUE, every_group), [catalogue])
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            for role, groups in ((MEMBER, team.members), (VIEWER, team.viewers)):
                called = [self._called(context, group) for group in groups]
                if called:
                    self.add(_binding(role, namespace, called), [namespaces.by_name[namespace], *roles])
            if context.stack.logs.kept and team.members:
                self._let_read_logs(
                    team.name, [self._called(context, each) for each in team.members], namespaces
                )
        self.register_outputs({})

    def _let_read_logs(self, team: str, members: Sequence[str], namespaces: Namespaces) -> None:
        """Let a team's members exec into one pod, named in the role: the reader of the team's logs."""
        about = metadata(names.team_namespace(team), names.LOGS_NAMESPACE)
        reader = {"apiGroups": [""], "resourceNames": [names.logs_reader(team)]}
        rules = [
            {**reader, "resources": ["pods"], "verbs": ["get"]},
            {**reader, "resources": ["pods/exec"], "verbs": ["create", "get"]},
        ]
        namespace = namespaces.by_name[names.LOGS_NAMESPACE]
        role = self.add({"apiVersion": _API, "kind": "Role", "metadata": about, "rules": rules}, [namespace])
        bound = _bound("RoleBinding", about["name"], members)
        bound["roleRef"]["kind"] = "Role"
        self.add({**bound, "metadata": about}, [role])

    @staticmethod
    def _called(context: PlatformContext, group: str) -> str:
        return context.settings.groups.get(group, group)


def _submitting(jobs: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    return [*_rules(jobs, _SUBMIT), *_rules(_WRITTEN, ("create",)), *_rules(_ENTERED, ("create", "get"))]


def _pausing(context: PlatformContext) -> list[dict[str, Any]]:
    return [] if context.stack.operators.kueue == "off" else _rules(_PAUSED, ("patch",))


def _catalogue(context: PlatformContext) -> dict[str, Sequence[str]]:
    operators = context.stack.operators
    installed = {"kueue.x-k8s.io": operators.kueue, "trainer.kubeflow.org": operators.trainer}
    return {group: kinds for group, kinds in _CATALOGUE.items() if installed[group] != "off"}


def job_resources(context: PlatformContext) -> dict[str, Sequence[str]]:
    """API group → kinds of jobs that this cluster takes."""
    operators = context.stack.operators
    mpi = ("mpijobs",) if operators.mpi != "off" else ()
    trainer = ("trainjobs",) if operators.trainer != "off" else ()
    jobset = ("jobsets",) if operators.jobset != "off" else ()
    jobs: dict[str, Sequence[str]] = {
        "batch": ("jobs",),
        "jobset.x-k8s.io": jobset,
        "trainer.kubeflow.org": trainer,
        "kubeflow.org": (*mpi, *operators.legacy_resources),
    }
    return {group: kinds for group, kinds in jobs.items() if kinds}


def _rules(resources: Mapping[str, Sequence[str]], verbs: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(verbs)}
        for group, kinds in resources.items()
    ]


def _role(name: str, rules: Sequence[Mapping[str, Any]]) -> Manifest:
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": metadata(name), "rules": list(rules)}


def _binding(role: str, namespace: str, groups: Sequence[str]) -> Manifest:
    return {**_bound("RoleBinding", role, groups), "metadata": metadata(role, namespace)}


def _cluster_binding(role: str, groups: Sequence[str]) -> Manifest:
    return {**_bound("ClusterRoleBinding", role, groups), "metadata": metadata(role)}


def _bound(kind: str, role: str, groups: Sequence[str]) -> Manifest:
    group = _API.partition("/")[0]
    return {
        "apiVersion": _API,
        "kind": kind,
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "Group", "name": name} for name in groups],
    }
