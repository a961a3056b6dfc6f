"""Control planes are not on the internet."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import must_equal


def judge(resource: Resource) -> Iterator[Violation]:
    """Each target's own switch for a private API server, with what it does when left out."""
    props = resource.props
    if resource.type.startswith("aws:"):
        yield from must_equal(props, "vpcConfig.endpointPublicAccess", False, default=True)
    elif resource.type.startswith("gcp:"):
        yield from must_equal(props, "privateClusterConfig.enablePrivateNodes", True, default=False)
        yield from must_equal(props, "privateClusterConfig.enablePrivateEndpoint", True, default=False)
    elif resource.type.startswith("azure-native:"):
        yield from must_equal(props, "apiServerAccessProfile.enablePrivateCluster", True, default=False)
    else:
        yield from must_equal(props, "public", False, default=False)


POLICY = Policy(
    name="security-private-endpoint",
    title="Control planes have private endpoints",
    reason="The API server holds all secrets of the cluster; one leaked token and a public endpoint suffice.",
    remedy="Make the endpoint private and reach it through the network.",
    types=(
        "aws:eks/cluster:Cluster",
        "gcp:container/cluster:Cluster",
        "azure-native:containerservice:ManagedCluster",
        "coreweave:index/cksCluster:CksCluster",
    ),
    judge=judge,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP EKS.1", "CIS EKS 5.4.2", "CIS GKE 5.6.4", "NIST SP 800-53 SC-7"),
)
