"""Policy: a spot pool can buy in several markets (pairs of machine type and zone; two by default), or has a
waiver with the reason.
"""

import re
from collections.abc import Iterator
from math import prod

from policies.capacity import is_spot_pool
from policies.policy import Policy, Resource, Violation, parameter
from policies.unknowns import PropertyBlock

WAIVER = "trainyard.dev/spot-waiver"
"""Tag, label or annotation with the reason why a pool buys in fewer markets."""

COMPONENT = "trainyard:infra:"
KARPENTER = "kubernetes:karpenter.sh/"
COREWEAVE = "kubernetes:compute.coreweave.com/"

SUBNET_PATHS = {
    "aws:eks/nodeGroup:NodeGroup": "subnetIds",
    "gcp:container/nodePool:NodePool": "nodeLocations",
    "azure-native:containerservice:AgentPool": "availabilityZones",
    "azure-native:compute:VirtualMachineScaleSet": "zones",
}
"""Type → property with its zones, or with subnets of which each is in one zone."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The number of (machine type, zone) pairs that a spot pool can buy in."""
    if resource.type.startswith(COMPONENT):
        yield from _spec(resource)
    elif resource.type.endswith(":Group"):
        yield from _group(resource)
    elif resource.type.startswith(KARPENTER):
        yield from _karpenter(resource)
    elif resource.type.startswith(COREWEAVE):
        spec = resource.props.block("spec")
        if spec.get("computeClass") == "spot":
            yield from _enough(resource, 1, "spec.instanceType")
    elif is_spot_pool(resource):
        props = resource.props
        types = props.count("instanceTypes") or 1
        path = SUBNET_PATHS[resource.type]
        zones = props.count(path) or _zones_of_region(props.get("location", ""), resource.type)
        yield from _enough(resource, types * max(zones, 1), path)


def _zones_of_region(location: str, resource_type: str) -> int:
    """Zones of a pool that names none: three of a regional GKE cluster, else one."""
    is_regional = resource_type.startswith("gcp:") and re.fullmatch(r".+\d", location)
    return 3 if is_regional else 1


def _spec(resource: Resource) -> Iterator[Violation]:
    """The pools of a cluster's spec, whatever the target, before any of them is made."""
    spec = resource.props.block("stack")
    zones = spec.count("target.zones")
    for pool in spec.blocks("pools"):
        real = pool.get("accelerator.model") != "simulated" and spec.get("target.kind") != "local"
        if pool.get("capacity") != "spot" or not real or pool.get("spot_waiver"):
            continue
        markets = (1 + pool.count("alternatives")) * (pool.count("zones") or zones or 1)
        wanted = resource.parameters["minimum_markets"]
        if markets < wanted:
            allowed = f"{wanted} or more (machine types × zones), or `spot_waiver` with the reason"
            yield Violation(pool.at("zones"), f"spot markets: {markets}", allowed)


def _karpenter(resource: Resource) -> Iterator[Violation]:
    """A provisioner buys all that its requirements let through: only a list of one market is too narrow."""
    template = resource.props.block("spec.template.spec")
    listed = {
        requirement.get("key"): requirement
        for requirement in template.blocks("requirements")
        if requirement.get("operator") == "In"
    }
    capacity = listed.get("karpenter.sh/capacity-type")
    if capacity is None or "spot" not in capacity.texts("values"):
        return
    market = [listed.get(key) for key in ("node.kubernetes.io/instance-type", "topology.kubernetes.io/zone")]
    if all(requirement is not None for requirement in market):
        counts = [requirement.count("values") for requirement in market if requirement is not None]
        yield from _enough(resource, prod(counts), template.at("requirements"))


def _group(resource: Resource) -> Iterator[Violation]:
    policy = resource.props.block("mixedInstancesPolicy")
    if not policy.data:
        return
    if policy.get("instancesDistribution.onDemandPercentageAboveBaseCapacity", 100) < 100:
        types = policy.count("launchTemplate.overrides") or 1
        zones = map(resource.props.count, ("vpcZoneIdentifiers", "availabilityZones"))
        subnets = max(*zones, 1)
        yield from _enough(resource, types * subnets, "mixedInstancesPolicy.launchTemplate.overrides")


def _enough(resource: Resource, markets: int, path: str) -> Iterator[Violation]:
    wanted = resource.parameters["minimum_markets"]
    if markets < wanted and not _is_waived(resource.props):
        allowed = f"{wanted} or more (machine types × zones), or {WAIVER} with the reason"
        yield Violation(path, f"spot markets: {markets}", allowed)


def _is_waived(props: PropertyBlock) -> bool:
    blocks = ("tags", "labels", "nodeLabels", "nodeConfig.labels", "metadata.annotations")
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
    remedy="Add machine types or zones, or give the reason in the waiver.",
    types=(
        "trainyard:infra:*Cluster",
        "aws:autoscaling/group:Group",
        "kubernetes:karpenter.sh/*:NodePool",
        "kubernetes:compute.coreweave.com/*:NodePool",
        *SUBNET_PATHS,
    ),
    evaluate=evaluate,
    frameworks=("AWS Config AUTOSCALING_MULTIPLE_INSTANCE_TYPES", "AWS Well-Architected COST07-BP05"),
    parameters={
        "minimum_markets": parameter(
            "integer", 2, "Pairs of machine type and zone that a spot pool must be able to buy in.", minimum=1
        )
    },
)
