"""Policy: a GKE node pool combines no options that GKE refuses together."""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.unknowns import PropertyBlock


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Flex-start, queued provisioning, compact placement, spot and reservations exclude each other."""
    props = resource.props
    node = props.block("nodeConfig")
    flexible = bool(node.get("flexStart"))
    queued = bool(props.get("queuedProvisioning.enabled"))
    compact = props.get("placementPolicy.type") == "COMPACT"
    if flexible or queued:
        yield from _queued_provisioning(props, node, flexible)
    if queued and compact:
        yield Violation("placementPolicy.type", "COMPACT", "none with queued provisioning")
    if compact and props.count("nodeLocations") > 1:
        yield Violation("nodeLocations", f"{props.count('nodeLocations')} zones", "one with COMPACT")
    affinity = node.get("reservationAffinity.consumeReservationType", "NO_RESERVATION")
    if node.get("spot") and affinity != "NO_RESERVATION":
        path = "nodeConfig.reservationAffinity.consumeReservationType"
        yield Violation(path, affinity, "NO_RESERVATION with spot")


def _queued_provisioning(props: PropertyBlock, node: PropertyBlock, flexible: bool) -> Iterator[Violation]:
    name = "flex-start" if flexible else "queued provisioning"
    if node.get("spot"):
        yield Violation("nodeConfig.spot", "true", f"false with {name}")
    if flexible and props.get("management.autoRepair", True):
        yield Violation("management.autoRepair", "true", "false with flex-start")
    if not flexible and props.get("management.autoUpgrade", True):
        yield Violation("management.autoUpgrade", "true", "false with queued provisioning")
    for path in ("autoscaling.minNodeCount", "autoscaling.totalMinNodeCount"):
        if not flexible and props.get(path, 0) != 0:
            yield Violation(path, props.get(path), "0")


POLICY = Policy(
    name="fabric-gke-pools",
    title="GKE pools combine compatible settings",
    reason="GKE refuses these combinations only after the cluster was created and is charged.",
    remedy="Drop one of the two settings.",
    types=("gcp:container/nodePool:NodePool",),
    evaluate=evaluate,
    frameworks=("GKE: about GPU obtainability with flex-start",),
)
