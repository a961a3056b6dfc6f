"""Spot is bought in more than one market."""

from __future__ import annotations

from collections.abc import Iterator

from policies.capacity import is_spot_pool
from policies.policy import Policy, Resource, Violation
from policies.unknowns import Properties

WAIVER = "trainyard.dev/spot-waiver"
"""Tag or label that says why a pool must live in fewer markets."""

PLACES = {
    "aws:eks/nodeGroup:NodeGroup": "subnetIds",
    "gcp:container/nodePool:NodePool": "nodeLocations",
    "azure-native:containerservice:AgentPool": "availabilityZones",
}
"""Type → the property that lists its zones, or subnets, of which each has its zone."""


def judge(resource: Resource) -> Iterator[Violation]:
    """The number of (machine type, zone) pairs that a spot pool can buy in."""
    if resource.type.endswith(":Group"):
        yield from _group(resource)
    elif is_spot_pool(resource):
        props = resource.props
        types = props.count("instanceTypes") or 1
        path = PLACES[resource.type]
        places = props.count(path)
        yield from _enough(resource, types * max(places, 1), path)


def _group(resource: Resource) -> Iterator[Violation]:
    policy = resource.props.block("mixedInstancesPolicy")
    if not policy.data:
        return
    if policy.get("instancesDistribution.onDemandPercentageAboveBaseCapacity", 100) < 100:
        types = policy.count("launchTemplate.overrides") or 1
        places = resource.props.count("vpcZoneIdentifiers") or 1
        yield from _enough(resource, types * places, "mixedInstancesPolicy.launchTemplate.overrides")


def _enough(resource: Resource, markets: int, path: str) -> Iterator[Violation]:
    wanted = resource.parameters["minimum_markets"]
    if markets < wanted and not _waived(resource.props):
        allowed = f"{wanted} or more (machine types × zones), or the tag {WAIVER} with the reason"
        yield Violation(path, f"spot markets: {markets}", allowed)


def _waived(props: Properties) -> bool:
    blocks = ("tags", "labels", "nodeLabels", "nodeConfig.labels")
    reasons = [props.block(name).entry(WAIVER) for name in blocks]
    listed = [tag.get("value") for tag in props.blocks("tags") if tag.get("key") == WAIVER]
    return any(reasons + listed)


POLICY = Policy(
    name="spot-diversified",
    title="Spot pools are spread over markets",
    reason=(
        "Prices and reclaims move per machine type and zone: a pool in one market loses all nodes at once; "
        "where a fabric needs one zone, that is a decision to write down."
    ),
    remedy="Add machine types or zones, or give the reason in the waiver tag.",
    types=(
        "aws:autoscaling/group:Group",
        *PLACES,
    ),
    judge=judge,
    frameworks=("AWS Config AUTOSCALING_MULTIPLE_INSTANCE_TYPES", "AWS Well-Architected COST07-BP05"),
    parameters={
        "minimum_markets": {
            "type": "integer",
            "minimum": 1,
            "default": 2,
            "description": "Pairs of machine type and zone that a spot pool must be able to buy in.",
        }
    },
)
