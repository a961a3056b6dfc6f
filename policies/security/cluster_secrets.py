"""Policy: Kubernetes Secrets are encrypted with a customer-managed key."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal, must_have_key


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A customer-managed key for what etcd holds; a key that is set but not yet known is one."""
    props = resource.props
    if resource.type.startswith("aws:"):
        yield from must_have_key(
            props, "encryptionConfig.provider.keyArn", "the ARN of a customer-managed key"
        )
    elif resource.type.startswith("gcp:"):
        yield from must_equal(props, "databaseEncryption.state", "ENCRYPTED")
        yield from must_have_key(props, "databaseEncryption.keyName")
    else:
        yield from must_equal(props, "securityProfile.azureKeyVaultKms.enabled", True, default=False)


POLICY = Policy(
    name="security-cluster-secrets",
    title="Kubernetes secrets are encrypted with a customer-managed key",
    reason="Credentials are stored in etcd; its backups must be unreadable without the key.",
    remedy="Name a customer-managed key for the encryption of secrets.",
    types=(
        "aws:eks/cluster:Cluster",
        "gcp:container/cluster:Cluster",
        "azure-native:containerservice:ManagedCluster",
    ),
    evaluate=evaluate,
    frameworks=("AWS FSBP EKS.3", "CIS EKS 5.3.1", "CIS GKE 5.3.1", "NIST SP 800-53 SC-28"),
)
