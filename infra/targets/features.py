"""Lists pool features that not every target has, and finds those that a stack uses but its target lacks."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import StrEnum

import catalog
from infra.stackfile.finding import Finding
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.source import KeyPath


class Feature(StrEnum):
    """A feature of pools that not every target has; a target has only those that it declares."""

    SPOT_CAPACITY = "spot capacity"
    RESERVED_CAPACITY = "reserved capacity"
    CAPACITY_BLOCKS = "a capacity block"
    RESERVED_PLACEMENT = "a reservation in a placement group"
    ALTERNATIVE_MACHINES = "alternative machine types"
    CHOSEN_PLACEMENT = "a placement policy"
    QUEUED_PROVISIONING = "provisioned nodes (`provisioning`)"
    AUTOSCALED_POOLS = "fewer nodes while no job waits (a range of `nodes`)"
    TPU_SLICES = "TPU slices"
    NVLINK_DOMAINS = "multi-node NVLink"


def _is_block(pool: NodePoolSpec) -> bool:
    return pool.reservation is not None and pool.reservation.kind == "block"


ASKED_BY: Mapping[Feature, tuple[str, Callable[[NodePoolSpec], object]]] = {
    Feature.SPOT_CAPACITY: ("capacity", lambda pool: pool.is_spot),
    Feature.RESERVED_CAPACITY: ("capacity", lambda pool: pool.capacity == "reserved"),
    Feature.CAPACITY_BLOCKS: ("reservation.kind", _is_block),
    Feature.RESERVED_PLACEMENT: (
        "reservation.placement_group",
        lambda pool: pool.reservation is not None and pool.reservation.placement_group is not None,
    ),
    Feature.ALTERNATIVE_MACHINES: ("alternatives", lambda pool: pool.alternatives),
    Feature.CHOSEN_PLACEMENT: ("placement", lambda pool: pool.placement),
    Feature.QUEUED_PROVISIONING: ("provisioning", lambda pool: pool.provisioning),
    Feature.AUTOSCALED_POOLS: ("nodes", lambda pool: pool.is_autoscaled),
    Feature.TPU_SLICES: ("topology", lambda pool: pool.topology),
    Feature.NVLINK_DOMAINS: ("machine", lambda pool: catalog.fabric(pool.fabric).nvlink_domain),
}
"""Feature → key of a pool that requests it, and a function that tells whether a pool does."""


def undeclared(
    pools: Sequence[NodePoolSpec], kind: str, declared: frozenset[Feature], reasons: Mapping[Feature, str]
) -> Iterator[Finding]:
    """Find each feature that the pools ask for and the target has not declared.

    `reasons`: what a user of this target should write instead; a feature without a reason is refused too.
    """
    for index, pool in enumerate(pools):
        for feature, (key, is_asked) in ASKED_BY.items():
            if feature not in declared and is_asked(pool):
                path: KeyPath = ("pools", index, *key.split("."))
                fix = reasons.get(feature, f"remove `{key}`, or choose a target that has it")
                yield path, str(feature), f"what kind: {kind} has", fix
