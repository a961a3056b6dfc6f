"""Policy: no Kubernetes role grants all verbs on all resources, and nothing binds cluster-admin, except for
names on the allow list.
"""

from collections.abc import Iterator
from fnmatch import fnmatchcase

from policies.policy import Policy, Resource, Severity, Violation, texts
from policies.workloads import namespaced_name

ESCALATING = ("bind", "escalate", "impersonate")
"""Verbs by which an account gives itself all rights, or takes another's."""
NOBODY_KNOWN = frozenset({"system:anonymous", "system:unauthenticated"})
"""User and group of whoever reaches the API server without signing in."""
EVERYBODY = NOBODY_KNOWN | {"system:authenticated"}
"""And the group of all who have signed in: on GKE, all accounts of Google. A role of one namespace may be
given to it, as Trainer's is for a ConfigMap that clients read."""


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
        for verb in rule.texts("verbs"):
            if verb in ESCALATING and not rule.count("resourceNames"):
                yield Violation(rule.at("verbs"), verb, "none, or with `resourceNames`")
    if resource.props.get("roleRef.name") == "cluster-admin":
        yield Violation("roleRef.name", "cluster-admin", "a separate role")
    of_namespace = resource.props.get("roleRef.kind") == "Role"
    for subject in resource.props.blocks("subjects"):
        if subject.get("name") in (NOBODY_KNOWN if of_namespace else EVERYBODY):
            yield Violation(subject.at("name"), subject.get("name"), "named users, groups or accounts")


POLICY = Policy(
    name="kubernetes-rbac-wildcards",
    title="Cluster roles grant no wildcards",
    reason="One bug in a controller with all rights compromises the whole cluster.",
    remedy="List verbs and resources, or add the role's name to `allowed`.",
    types=("kubernetes:rbac.authorization.k8s.io/*",),
    evaluate=evaluate,
    severity=Severity.HIGH,
    frameworks=("CIS Kubernetes 5.1.1", "CIS Kubernetes 5.1.3", "NIST SP 800-53 AC-6"),
    parameters={"allowed": texts("Patterns of names of roles and bindings that may grant all.")},
)
