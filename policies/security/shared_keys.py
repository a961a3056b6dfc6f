"""Policy: AKS has no local accounts, GKE has no client certificates and no legacy ABAC, and Azure storage
accounts accept no account keys.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal


def evaluate(resource: Resource) -> Iterator[Violation]:
    """No local accounts, no client certificates, no account keys: what has no name cannot be taken away."""
    props = resource.props
    if resource.type == "azure-native:containerservice:ManagedCluster":
        yield from must_equal(props, "disableLocalAccounts", True, default=False)
    elif resource.type == "azure-native:storage:StorageAccount":
        yield from must_equal(props, "allowSharedKeyAccess", False, default=True)
    else:
        certificates = "masterAuth.clientCertificateConfig.issueClientCertificate"
        yield from must_equal(props, certificates, False, default=False)
        yield from must_equal(props, "enableLegacyAbac", False, default=False)


POLICY = Policy(
    name="security-shared-keys",
    title="Access is by identity, not by shared keys",
    reason="A shared key has no owner: its use cannot be traced, and it works until it is rotated for all.",
    remedy="Turn the shared access off, and grant roles to identities.",
    types=(
        "azure-native:containerservice:ManagedCluster",
        "azure-native:storage:StorageAccount",
        "gcp:container/cluster:Cluster",
    ),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 IA-2", "NIST SP 800-53 AC-2"),
)
