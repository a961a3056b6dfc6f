"""Policy: EC2 Auto Scaling groups with spot instances have an interruption handler, and AKS deletes evicted
spot nodes.
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal

HANDLER_TAG = "aws-node-termination-handler/managed"
"""Tag of scaling groups that the Node Termination Handler in queue mode manages."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Check the pool's handling of interruptions, where the cloud does not drain nodes itself."""
    props = resource.props
    if resource.type.endswith(":AgentPool"):
        if props.get("scaleSetPriority") == "Spot":
            yield from must_equal(props, "scaleSetEvictionPolicy", "Delete", default="Delete")
        return
    mixed = props.block("mixedInstancesPolicy.instancesDistribution")
    if mixed.get("onDemandPercentageAboveBaseCapacity", 100) < 100:
        keys = [tag.get("key") for tag in props.blocks("tags")]
        if HANDLER_TAG not in keys:
            yield Violation("tags", "no interruption handler", f"the tag {HANDLER_TAG}")


POLICY = Policy(
    name="spot-interruption-handling",
    title="Spot interruptions are handled",
    reason=(
        "GKE and EKS managed node groups drain by themselves; scaling groups do not, and a deallocated Azure "
        "node comes back under its old name with a dead disk."
    ),
    remedy="Install the Node Termination Handler for the group, or let evicted nodes be deleted.",
    types=("aws:autoscaling/group:Group", "azure-native:containerservice:AgentPool"),
    evaluate=evaluate,
    frameworks=("AWS Well-Architected REL11-BP01", "NIST SP 800-53 CP-10"),
)
