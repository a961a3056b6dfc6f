"""Policy: no Kubernetes role grants all verbs on all resources, and nothing binds cluster-admin, except for
names on the allow list.
"""

from __future__ import annotations

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Severity, Violation
from policies.workloads import namespaced_name


def evaluate(resource: Resource) -> Iterator[Violation]:
    """No rule that grants all verbs on all resources, and no binding of cluster-admin."""
    name = namespaced_name(resource).rpartition("/")[2]
    if any(fnmatchcase(name, pattern) for pattern in resource.parameters["allowed"]):
        return
    for rule in resource.props.blocks("rules"):
        groups = rule.texts("apiGroups")
        is_wide = not groups or not {"*", ""}.isdisjoint(groups)
        if is_wide and "*" in rule.texts("verbs") and "*" in rule.texts("resources"):
            yield Violation(
                rule.path, "all verbs on all resources", "the verbs and resources that are needed"
            )
    if resource.props.get("roleRef.name") == "cluster-admin":
        yield Violation("roleRef.name", "cluster-admin", "a separate role")


POLICY = Policy(
    name="kubernetes-rbac-wildcards",
    title="Cluster roles grant no wildcards",
    reason="One bug in a controller with all rights compromises the whole cluster.",
    remedy="List verbs and resources, or add the role's name to `allowed`.",
    types=("kubernetes:rbac.authorization.k8s.io/*",),
    evaluate=evaluate,
    severity=Severity.HIGH,
    frameworks=("CIS Kubernetes 5.1.1", "CIS Kubernetes 5.1.3", "NIST SP 800-53 AC-6"),
    parameters={
        "allowed": {
            "type": "array",
            "items": {"type": "string"},
            "default": [],
            "description": "Patterns of names of roles and bindings that may grant all.",
        }
    },
)
