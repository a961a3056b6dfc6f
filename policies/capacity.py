"""Determines whether a pod may run on spot nodes (by selector, affinity or toleration), whether a node pool
is spot capacity, and whether a pool has real accelerators.
"""

from collections.abc import Iterator, Mapping

from catalog import carries_accelerators
from policies.policy import Resource
from policies.unknowns import PropertyBlock

SPOT_LABELS: Mapping[str, frozenset[str]] = {
    "trainyard.dev/capacity": frozenset({"spot"}),
    "karpenter.sh/capacity-type": frozenset({"spot"}),
    "eks.amazonaws.com/capacityType": frozenset({"SPOT"}),
    "cloud.google.com/gke-spot": frozenset({"true"}),
    "kubernetes.azure.com/scalesetpriority": frozenset({"spot"}),
}
ALWAYS_SET = ("trainyard.dev/capacity", "karpenter.sh/capacity-type", "eks.amazonaws.com/capacityType")
"""Labels that on-demand nodes have too, with another value."""
SPOT_TAINTS = ("trainyard.dev/spot", "cloud.google.com/gke-spot", "kubernetes.azure.com/scalesetpriority")


def selects_spot(pod: PropertyBlock) -> bool:
    """Whether the pod asks for spot nodes by selector or affinity, or tolerates their taint."""
    selector = pod.block("nodeSelector")
    elsewhere = (label in selector.data for label in ALWAYS_SET)
    if any(elsewhere) and not any(str(selector.entry(label)) in SPOT_LABELS[label] for label in ALWAYS_SET):
        return False  # it tolerates what it does not select
    chosen = any(str(selector.entry(label)) in values for label, values in SPOT_LABELS.items())
    tolerated = any(
        toleration.get("key") in SPOT_TAINTS or _tolerates_all(toleration)
        for toleration in pod.blocks("tolerations")
    )
    return chosen or tolerated or any(map(_admits_spot, _node_terms(pod)))


def _node_terms(pod: PropertyBlock) -> Iterator[PropertyBlock]:
    """Terms of the pod's node affinity, required and preferred."""
    affinity = pod.block("affinity.nodeAffinity")
    yield from affinity.block("requiredDuringSchedulingIgnoredDuringExecution").blocks("nodeSelectorTerms")
    for preferred in affinity.blocks("preferredDuringSchedulingIgnoredDuringExecution"):
        yield preferred.block("preference")


def _admits_spot(term: PropertyBlock) -> bool:
    """Whether an expression of the term lists a spot label's value among those that it takes."""
    return any(
        expression.get("operator") == "In"
        and SPOT_LABELS.get(str(expression.get("key")), frozenset()).intersection(expression.texts("values"))
        for expression in term.blocks("matchExpressions")
    )


def is_accelerated(pool: PropertyBlock) -> bool:
    """Whether a pool of a cluster's spec has accelerators that are real."""
    model = pool.get("accelerator.model")
    return model != "simulated" if model else carries_accelerators(pool.get("machine", ""))


def is_spot_pool(resource: Resource) -> bool:
    """Whether a cloud's node pool buys spot capacity."""
    props = resource.props
    if resource.type.startswith("aws:"):
        return bool(props.get("capacityType") == "SPOT")
    if resource.type.startswith("gcp:"):
        node = props.block("nodeConfig")
        return bool(node.get("spot") or node.get("preemptible"))
    if resource.type.startswith("azure-native:compute:"):
        return bool(props.get("virtualMachineProfile.priority") == "Spot")
    return bool(props.get("scaleSetPriority") == "Spot")


def _tolerates_all(toleration: PropertyBlock) -> bool:
    return not toleration.get("key") and toleration.get("operator") == "Exists"
