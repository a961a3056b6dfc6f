"""Declares the fleet's objects on a worker: the manager's service account and role, and local queues."""

from collections.abc import Mapping, Sequence
from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import KubernetesObject, connect
from infra.fleet.stacks import Facts, Stacks
from infra.platform.base import metadata
from infra.stackfile.fleet import Fleet, WorkerSpec

KUEUE = "kueue.x-k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_TRAINER = "trainer.kubeflow.org"
_SEEN: Sequence[tuple[str, str, Sequence[str]]] = (
    (KUEUE, "workloads", ("list", "watch")),
    (_TRAINER, "trainjobs", ("watch",)),
    # Kueue connects only if it may watch every kind that it queues, even those that are never sent.
    ("batch", "jobs", ("watch",)),
    ("jobset.x-k8s.io", "jobsets", ("watch",)),
    ("kubeflow.org", "mpijobs", ("watch",)),
)
"""API group, resource and verbs in all namespaces: the manager sees jobs, contents of pods are not."""
_SENT: Sequence[tuple[str, str, Sequence[str]]] = (
    (KUEUE, "workloads", ("create", "delete", "get", "update")),
    (KUEUE, "workloads/status", ("get", "patch", "update")),
    (_TRAINER, "trainjobs", ("create", "delete", "get")),
    (_TRAINER, "trainjobs/status", ("get",)),
)
"""API group, resource and verbs in the namespaces of the fleet's teams only."""


class Worker(pulumi.ComponentResource):
    """The fleet's objects on one worker; `ready` has what the manager's token, or a job, needs there."""

    def __init__(self, fleet: Fleet, worker: WorkerSpec, stacks: Stacks, parent: pulumi.Resource) -> None:
        queues = fleet.queues_on(worker)
        declared = worker.model_dump(mode="json", exclude_none=True)
        inputs = {"worker": declared, "queues": [queue.name for queue in queues]}
        options = pulumi.ResourceOptions(parent=parent)
        super().__init__("trainyard:fleet:Worker", f"{fleet.name}-{worker.name}", inputs, options)
        outputs = stacks.workers[worker.name]
        self._name, self.kubeconfig = worker.name, outputs.kubeconfig
        self.access = connect(f"{fleet.name}-{worker.name}", outputs.kubeconfig, None, self)
        self.account = {"namespace": f"fleet-{fleet.name}", "name": "hub"}
        teams = sorted({team for queue in queues for team in queue.teams})
        self.ready = [*self._account(teams), *self._queues(fleet, worker, outputs.facts)]
        self.register_outputs({})

    def _account(self, teams: Sequence[str]) -> list[KubernetesObject]:
        """Make the manager's service account: it lists jobs, and creates jobs in the teams' namespaces."""
        namespace, name = self.account["namespace"], self.account["name"]
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        home = self._add({**_core("Namespace"), "metadata": metadata(namespace, labels=restricted)})
        account = self._add(
            {
                **_core("ServiceAccount"),
                "metadata": metadata(name, namespace),
                "automountServiceAccountToken": False,
            },
            home,
        )
        seeing = self._add(_role(f"{namespace}-sees", _SEEN))
        sending = self._add(_role(f"{namespace}-sends", _SENT))
        bound = [self._add(_binding("ClusterRoleBinding", f"{namespace}-sees", None, self.account), seeing)]
        for team in teams:
            where = names.team_namespace(team)
            bound.append(
                self._add(_binding("RoleBinding", f"{namespace}-sends", where, self.account), sending)
            )
        return [account, *bound]

    def _queues(
        self, fleet: Fleet, worker: WorkerSpec, facts: pulumi.Output[Facts]
    ) -> list[KubernetesObject]:
        """A team's jobs of the fleet wait here in the cluster queue that the team has here."""
        return [
            self._add(local_queue(queue.name, team, facts.apply(_queue_of(team))))
            for queue in fleet.queues_on(worker)
            for team in queue.teams
        ]

    def _add(self, manifest: Manifest, *depends_on: pulumi.Resource) -> KubernetesObject:
        return KubernetesObject(manifest, self.access.options(self, depends_on), cluster=self._name)


def local_queue(name: str, team: str, cluster_queue: pulumi.Input[str]) -> Manifest:
    """Return a team's local queue of the fleet: of the same name in the manager and on the workers."""
    return {
        "apiVersion": f"{KUEUE}/v1beta2",
        "kind": "LocalQueue",
        "metadata": metadata(name, names.team_namespace(team)),
        "spec": {"clusterQueue": cluster_queue},
    }


def _queue_of(team: str) -> Any:  # noqa: ANN401 -- a function over outputs
    def found(facts: Facts) -> str:
        # A missing team has been reported as a problem, which ends the program.
        return str(((facts["queues"] or {}).get(team) or {}).get("clusterQueue", ""))

    return found


def _core(kind: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": kind}


def _role(name: str, rules: Sequence[tuple[str, str, Sequence[str]]]) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "ClusterRole",
        "metadata": metadata(name),
        "rules": [
            {"apiGroups": [group], "resources": [resource], "verbs": list(verbs)}
            for group, resource, verbs in rules
        ],
    }


def _binding(kind: str, role: str, namespace: str | None, account: Mapping[str, str]) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata(role, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"kind": "ServiceAccount", **account}],
    }
