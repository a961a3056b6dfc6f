"""Policy: an AKS cluster has a diagnostic setting that exports its audit log."""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation

LOGS = ("kube-audit", "kube-audit-admin")
"""Categories of the audit log: with reads, and without reads, which are most of it."""
GROUPS = ("allLogs", "audit")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """One diagnostic setting of the cluster keeps the audit log."""
    settings = resource.related_resources.pointing_at(resource, "resourceUri", "id")
    if not any(_keeps_audit(setting) for setting in settings):
        yield Violation("id", "no DiagnosticSetting with the audit log", " or ".join(LOGS))


def _keeps_audit(setting: Resource) -> bool:
    return any(
        log.get("enabled") and (log.get("category") in LOGS or log.get("categoryGroup") in GROUPS)
        for log in setting.props.blocks("logs")
    )


POLICY = Policy(
    name="security-aks-audit-logs",
    title="AKS clusters retain their audit log",
    reason="AKS writes an audit log only if a diagnostic setting exports it.",
    remedy="Declare a DiagnosticSetting whose `resourceUri` is the cluster's id.",
    types=("azure-native:containerservice:ManagedCluster",),
    together_with=("azure-native:*:DiagnosticSetting",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 AU-2", "NIST SP 800-53 AU-12"),
)
