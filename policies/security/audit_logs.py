"""Policy: EKS, GKE and CoreWeave control planes have their audit log enabled."""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_set

EKS_LOGS = ("audit", "authenticator")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The audit log of the control plane is retained."""
    props = resource.props
    if resource.type.startswith("aws:"):
        enabled = props.texts("enabledClusterLogTypes")
        if missing := [name for name in EKS_LOGS if name not in enabled]:
            yield Violation("enabledClusterLogTypes", f"no {', '.join(missing)}", ", ".join(EKS_LOGS))
    elif resource.type.startswith("gcp:"):
        enabled = props.texts("loggingConfig.enableComponents")
        if "APISERVER" not in enabled:
            yield Violation(
                "loggingConfig.enableComponents", ", ".join(enabled) or "nothing", "APISERVER among them"
            )
    else:
        yield from must_be_set(props, "auditPolicy", "an audit policy")


POLICY = Policy(
    name="security-audit-logs",
    title="Control planes store audit logs",
    reason="Only the audit log can answer later who submitted which job and read which secret.",
    remedy="Turn the audit log on.",
    types=(
        "aws:eks/cluster:Cluster",
        "gcp:container/cluster:Cluster",
        "coreweave:index/cksCluster:CksCluster",
    ),
    evaluate=evaluate,
    frameworks=("AWS FSBP EKS.8", "CIS EKS 2.1.1", "NIST SP 800-53 AU-2", "NIST SP 800-53 AU-12"),
)
