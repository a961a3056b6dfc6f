"""Policy: node pools of GKE and AKS are separate resources, so that the policies on pools see them; only AKS
system pools may be inside the cluster's resource.
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal


def evaluate(resource: Resource) -> Iterator[Violation]:
    """GKE's default pool is removed, and no cluster carries pools inside but AKS's system pool."""
    props = resource.props
    if resource.type.startswith("gcp:"):
        if not props.get("enableAutopilot"):
            yield from must_equal(props, "removeDefaultNodePool", True, default=False)
        if props.count("nodePools"):
            yield Violation(
                "nodePools", f"{props.count('nodePools')} inside the cluster", "NodePool resources"
            )
        return
    for profile in props.blocks("agentPoolProfiles"):
        if profile.get("mode", "User") != "System":
            yield Violation(
                profile.at("mode"), profile.get("mode", "User"), "System; AgentPool resources for the others"
            )


POLICY = Policy(
    name="security-inline-pools",
    title="Node pools are separate resources",
    reason="A pool inside the cluster's resource is not seen by the policies on pools: keys, spot, cost.",
    remedy="Declare the pool as a resource, and remove GKE's default pool.",
    types=("gcp:container/cluster:Cluster", "azure-native:containerservice:ManagedCluster"),
    evaluate=evaluate,
    frameworks=("CIS GKE 5.5", "NIST SP 800-53 CM-6"),
)
