"""Policy: EC2 Auto Scaling groups with spot instances allocate by capacity, and rebalance before an
interruption.
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal

LASTING_STRATEGIES = ("price-capacity-optimized", "capacity-optimized", "capacity-optimized-prioritized")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Allocation by capacity, and rebalancing at the early signal."""
    distribution = resource.props.block("mixedInstancesPolicy.instancesDistribution")
    if distribution.get("onDemandPercentageAboveBaseCapacity", 100) == 100:
        return
    strategy = distribution.get("spotAllocationStrategy", "lowest-price")
    if strategy not in LASTING_STRATEGIES:
        yield Violation(distribution.at("spotAllocationStrategy"), strategy, ", ".join(LASTING_STRATEGIES))
    yield from must_equal(resource.props, "capacityRebalance", True, default=False)


POLICY = Policy(
    name="spot-allocation",
    title="Scaling groups buy spot by capacity and rebalance",
    reason="The cheapest spot is the first to be reclaimed; the rebalance signal comes before the notice.",
    remedy="Use price-capacity-optimized and turn capacityRebalance on.",
    types=("aws:autoscaling/group:Group",),
    evaluate=evaluate,
    frameworks=("AWS Config AUTOSCALING_CAPACITY_REBALANCING", "AWS Well-Architected COST07-BP05"),
)
