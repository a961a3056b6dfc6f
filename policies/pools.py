"""Reads node pools of EKS, GKE and AKS in common terms: machine types, minimum and maximum size."""

from dataclasses import dataclass

from policies.policy import Resource

TYPES = (
    "aws:eks/nodeGroup:NodeGroup",
    "gcp:container/nodePool:NodePool",
    "azure-native:containerservice:AgentPool",
)


@dataclass(frozen=True)
class PoolBounds:
    """The minimum and maximum size of a pool, and its machine types."""

    machine_types: tuple[str, ...]
    """All machine types that the pool may use."""
    minimum: int
    maximum: int
    autoscaled: bool
    minimum_path: str
    machine_path: str


def pool_of(resource: Resource) -> PoolBounds:
    """The pool that a resource of one of `TYPES` declares.

    Raises `UnknownProperty` where its size or machines are not known at preview.
    """
    props = resource.props
    if resource.type.startswith("aws:"):
        scaling = props.block("scalingConfig")
        least, most = scaling.get("minSize", 0), scaling.get("maxSize", 0)
        types = tuple(props.texts("instanceTypes"))
        return PoolBounds(types, least, most, least != most, "scalingConfig.minSize", "instanceTypes")
    if resource.type.startswith("gcp:"):
        scaling = props.block("autoscaling")
        fixed = props.get("nodeCount", props.get("initialNodeCount", 0))
        least = scaling.get("totalMinNodeCount", scaling.get("minNodeCount", 0 if scaling.data else fixed))
        most = scaling.get("totalMaxNodeCount", scaling.get("maxNodeCount", fixed))
        machine = props.get("nodeConfig.machineType", "")
        path = (
            "autoscaling.totalMinNodeCount"
            if "totalMinNodeCount" in scaling.data
            else "autoscaling.minNodeCount"
        )
        return PoolBounds((machine,), least, most, bool(scaling.data), path, "nodeConfig.machineType")
    scaled = bool(props.get("enableAutoScaling"))
    least = props.get("minCount", 0) if scaled else props.get("count", 0)
    most = props.get("maxCount", 0) if scaled else props.get("count", 0)
    return PoolBounds((props.get("vmSize", ""),), least, most, scaled, "minCount", "vmSize")
