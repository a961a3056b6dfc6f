"""What a job cannot lose does not run on spot."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase

from policies.capacity import selects_spot
from policies.policy import Policy, Resource, Violation
from policies.unknowns import Properties, Value
from policies.workloads import namespaced_name, pod_specs

LAUNCHER_ROLES = ("launcher", "master", "head")


def judge(resource: Resource) -> Iterator[Violation]:
    """Launchers inside job objects, and workloads that are rendezvous stores by name."""
    name = namespaced_name(resource).rpartition("/")[2]
    store = any(fnmatchcase(name, pattern) for pattern in resource.parameters["stores"])
    for pod in pod_specs(resource):
        role = "rendezvous store" if store else _role(resource.props.data, pod)
        if role and selects_spot(pod):
            yield Violation(pod.path, f"a {role} that may run on spot", "on-demand nodes")


def _role(data: Mapping[str, Value], pod: Properties) -> str:
    """The launcher's role by the key or the sibling `name` on the way to its pod; empty for others."""
    parts = pod.path.replace("[", ".[").split(".")
    value: Value = data
    for part in parts:
        value = value[int(part[1:-1])] if part.startswith("[") else value[part]
        named = value.get("name") if isinstance(value, dict) and "template" in value else None
        for label in (part, named):
            if isinstance(label, str) and label.lower() in LAUNCHER_ROLES:
                return label.lower()
    return ""


POLICY = Policy(
    name="spot-launchers",
    title="Launchers and rendezvous stores run on on-demand",
    reason="A lost worker costs its steps since the checkpoint; a lost launcher or store ends the whole job.",
    remedy="Select on-demand nodes for it, and do not tolerate the spot taint.",
    types=(
        "kubernetes:apps/*",
        "kubernetes:batch/*",
        "kubernetes:core/v1:Pod*",
        "kubernetes:kubeflow.org/*",
        "kubernetes:trainer.kubeflow.org/*",
        "kubernetes:jobset.x-k8s.io/*",
        "kubernetes:ray.io/*",
    ),
    judge=judge,
    frameworks=("NIST SP 800-53 CP-10",),
    parameters={
        "stores": {
            "type": "array",
            "items": {"type": "string"},
            "default": ["*etcd*", "*rendezvous*", "*rdzv*", "*tcpstore*"],
            "description": "Patterns of names of workloads that hold a job's rendezvous.",
        }
    },
)
