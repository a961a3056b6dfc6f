"""People: what the groups of a team may do, in the namespace of their team and nowhere else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra import names
from infra.charts import Manifest
from infra.platform.base import Context, Layer, metadata
from infra.platform.namespaces import Namespaces

_API = "rbac.authorization.k8s.io/v1"
_LOOK = ("get", "list", "watch")
_SUBMIT = ("create", "delete")
"""To change a job is to submit another one: queues hold on to what they have admitted."""
MEMBER, VIEWER = "trainyard-team-member", "trainyard-team-viewer"
_SEEN: Mapping[str, Sequence[str]] = {
    "": ("events", "persistentvolumeclaims", "pods", "pods/log"),
    "batch": ("jobs",),
    "jobset.x-k8s.io": ("jobsets",),
    "kueue.x-k8s.io": ("localqueues", "workloads"),
}
"""API group → what a job becomes. No Secrets, and no way into a pod: a job has its team's storage keys."""
_LEGACY_JOBS = ("mpijobs", "pytorchjobs", "tfjobs", "xgboostjobs")


class People(Layer):
    """Two roles, bound in each team's namespace to the groups that the stack file names."""

    def __init__(self, context: Context, namespaces: Namespaces, parent: pulumi.Resource) -> None:
        teams = {team.name: list(team.groups) for team in context.stack.teams}
        super().__init__(context, "people", {"teams": teams}, parent)
        jobs = _jobs(context)
        seen = {**_SEEN, **jobs}
        roles = [
            self.add(_role(MEMBER, [*_rules(seen, _LOOK), *_rules(jobs, _SUBMIT)])),
            self.add(_role(VIEWER, _rules(seen, _LOOK))),
        ]
        for team in context.stack.teams:
            namespace = names.team_namespace(team.name)
            for role, groups in ((MEMBER, team.members), (VIEWER, team.viewers)):
                called = [context.settings.groups.get(group, group) for group in groups]
                if called:
                    self.add(_binding(role, namespace, called), [namespaces.by_name[namespace], *roles])
        self.register_outputs({})


def _jobs(context: Context) -> dict[str, Sequence[str]]:
    """API group → kinds of jobs that this cluster takes."""
    operators = context.stack.operators
    kubeflow = _LEGACY_JOBS if operators.legacy_v1 else ("mpijobs",) if operators.mpi != "off" else ()
    trainer = ("trainjobs",) if operators.trainer != "off" else ()
    jobs: dict[str, Sequence[str]] = {"trainer.kubeflow.org": trainer, "kubeflow.org": kubeflow}
    return {group: kinds for group, kinds in jobs.items() if kinds}


def _rules(resources: Mapping[str, Sequence[str]], verbs: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {"apiGroups": [group], "resources": list(kinds), "verbs": list(verbs)}
        for group, kinds in resources.items()
    ]


def _role(name: str, rules: Sequence[Mapping[str, Any]]) -> Manifest:
    return {"apiVersion": _API, "kind": "ClusterRole", "metadata": metadata(name), "rules": list(rules)}


def _binding(role: str, namespace: str, groups: Sequence[str]) -> Manifest:
    subjects = [{"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": name} for name in groups]
    return {
        "apiVersion": _API,
        "kind": "RoleBinding",
        "metadata": metadata(role, namespace),
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        "subjects": subjects,
    }
