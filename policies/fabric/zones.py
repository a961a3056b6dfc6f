"""Policy: an EKS or GKE node pool whose fabric does not cross zones is in one zone."""

from collections.abc import Iterator

from catalog import has_fabric_of_one_zone
from policies.policy import Policy, Resource, Violation


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Pools of nodes with a fast fabric name one subnet or zone."""
    props = resource.props
    if resource.type.startswith("aws:"):
        machines, path = props.texts("instanceTypes"), "subnetIds"
    else:
        machines, path = props.texts("nodeConfig.machineType"), "nodeLocations"
    if any(map(has_fabric_of_one_zone, machines)) and props.count(path) > 1:
        yield Violation(path, f"{props.count(path)} zones", "one: the fabric does not cross zones")


POLICY = Policy(
    name="fabric-one-zone",
    title="Pools with a fabric are in one zone",
    reason="EFA and Google Cloud's RDMA networks end at the zone: ranks in two use TCP or cannot connect.",
    remedy="Make one pool per zone.",
    types=("aws:eks/nodeGroup:NodeGroup", "gcp:container/nodePool:NodePool"),
    evaluate=evaluate,
    frameworks=("AWS EFA user guide: EFA limitations",),
)
