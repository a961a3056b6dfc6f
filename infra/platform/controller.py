"""Deploys `trainyard-controller` (infra/controller), with an account for itself and one for each task."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import pulumi

from infra.common import names
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import not_awaited
from infra.controller.main import NAME, SETTINGS, UNSTARTABLE
from infra.platform.base import RESTRICTED_CONTAINER, RESTRICTED_POD, Layer, PlatformContext, metadata
from infra.platform.namespaces import Namespaces

RULES: Mapping[str, Sequence[Mapping[str, Any]]] = {
    UNSTARTABLE: (
        {"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]},
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "list"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads"], "verbs": ["list", "patch"]},
        {"apiGroups": ["kueue.x-k8s.io"], "resources": ["workloads/status"], "verbs": ["patch"]},
    )
}
"""Rights of each task's account in the namespaces of teams."""
OWN_RULES: Sequence[Mapping[str, Any]] = (
    {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["create"]},
    {
        "apiGroups": ["coordination.k8s.io"],
        "resources": ["leases"],
        "resourceNames": [NAME],
        "verbs": ["get", "update"],
    },
    {
        "apiGroups": [""],
        "resources": ["serviceaccounts/token"],
        "resourceNames": list(RULES),
        "verbs": ["create"],
    },
)
"""Rights of the pod's own account, in its namespace."""
_RBAC = "rbac.authorization.k8s.io"
FILES = "/opt/trainyard/controller"
START = f"import sys; sys.path.insert(0, '{FILES}'); from infra.controller.main import main; main()"
_LABELS = {"app.kubernetes.io/name": NAME}


class Controller(Layer):
    """The Deployment, for which `up` does not wait: no job needs it to start or to run."""

    def __init__(self, context: PlatformContext, namespaces: Namespaces, parent: pulumi.Resource) -> None:
        seconds = context.stack.operators.unstartable_seconds
        super().__init__(context, "controller", {"unstartable_seconds": seconds}, parent)
        namespace, teams = namespaces.by_name[NAME], [each.name for each in context.stack.teams]
        accounts = [self.add(_account(name), [namespace]) for name in (NAME, *RULES)]
        own = self.add(_role("Role", NAME, OWN_RULES, NAME), [namespace])
        self.add(_binding(NAME, NAME, "Role"), [own, *accounts])
        roles = [self.add(_role("ClusterRole", f"{NAME}-{task}", rules)) for task, rules in RULES.items()]
        for name in map(names.team_namespace, teams):
            bound = [namespaces.by_name[name], *roles, *accounts]
            for task in RULES:
                self.add(_binding(task, name, "ClusterRole"), bound)
        self.add(_closed(), [namespace])
        settings = {
            "namespaces": [names.team_namespace(each) for each in teams],
            "unstartable_seconds": seconds,
        }
        program = self.add(_program(settings), [namespace])
        self.add(not_awaited(_deployment(context)), [program, *accounts])
        self.register_outputs({})


@cache
def program_files() -> Mapping[str, str]:
    """Return the controller's files by name."""
    found = files("infra.controller")
    return {
        each.name: each.read_text(encoding="utf-8")
        for each in sorted(found.iterdir(), key=lambda each: each.name)
        if each.name.endswith((".py", ".json"))
    }


def program_digest() -> str:
    """Return a short digest of the controller's files."""
    return hashlib.sha256(json.dumps(program_files(), sort_keys=True).encode()).hexdigest()[:12]


def _program(settings: Mapping[str, Any]) -> Manifest:
    data = {**program_files(), SETTINGS: json.dumps(settings)}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata(NAME, NAME), "data": data}


def _deployment(context: PlatformContext) -> Manifest:
    items = [{"key": name, "path": f"infra/controller/{name}"} for name in (*program_files(), SETTINGS)]
    pod = {
        "serviceAccountName": NAME,
        "enableServiceLinks": False,
        "nodeSelector": context.system_selector,
        "securityContext": RESTRICTED_POD,
        "terminationGracePeriodSeconds": 5,
        "containers": [_container(context)],
        "volumes": [{"name": "program", "configMap": {"name": NAME, "items": items}}],
    }
    # A pod with another program, not one whose files change below it.
    digest = {"trainyard.dev/program": program_digest()}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(NAME, NAME),
        "spec": {
            "replicas": 1,
            "selector": {"matchLabels": _LABELS},
            "template": {"metadata": {"labels": _LABELS, "annotations": digest}, "spec": pod},
        },
    }


def _container(context: PlatformContext) -> dict[str, Any]:
    return {
        "name": "controller",
        "image": context.settings.training_image,
        "imagePullPolicy": context.settings.image_pull_policy,
        "command": ["python3", "-IS", "-c", START],
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "120Mi"}},
        "securityContext": {**RESTRICTED_CONTAINER, "readOnlyRootFilesystem": True},
        "volumeMounts": [{"name": "program", "mountPath": FILES, "readOnly": True}],
    }


def _account(name: str) -> Manifest:
    about = metadata(name, NAME)
    mounted = {"automountServiceAccountToken": name == NAME}
    return {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": about, **mounted}


def _role(kind: str, name: str, rules: Sequence[Mapping[str, Any]], namespace: str | None = None) -> Manifest:
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": kind,
        "metadata": metadata(name, namespace),
        "rules": [dict(rule) for rule in rules],
    }


def _binding(account: str, namespace: str, kind: str) -> Manifest:
    role = NAME if account == NAME else f"{NAME}-{account}"
    return {
        "apiVersion": f"{_RBAC}/v1",
        "kind": "RoleBinding",
        "metadata": metadata(role, namespace),
        "roleRef": {"apiGroup": _RBAC, "kind": kind, "name": role},
        "subjects": [{"kind": "ServiceAccount", "name": account, "namespace": NAME}],
    }


def _closed() -> Manifest:
    """Let nobody in, and the pod out to the API server's ports alone, whose address may be any."""
    ports = [{"protocol": "TCP", "port": port} for port in (443, 6443)]
    spec = {
        "podSelector": {},
        "policyTypes": ["Ingress", "Egress"],
        "ingress": [],
        "egress": [{"ports": ports}],
    }
    return {
        "apiVersion": "networking.k8s.io/v1",
        "kind": "NetworkPolicy",
        "metadata": metadata("closed", NAME),
        "spec": spec,
    }
