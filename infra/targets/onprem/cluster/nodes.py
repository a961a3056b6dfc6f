"""Pool settings, node labels (leaf, spine) and topology levels of an on-premises cluster; no Pulumi
resources.
"""

from collections.abc import Iterator, Sequence

import catalog
from infra.common import names
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.base import NVIDIA_RESOURCE, PoolSettings, make_pool_settings, pool_labels
from infra.targets.onprem.stackfile.target import LeafSpec, OnpremSpec


def pool_settings(pool: NodePoolSpec, spec: OnpremSpec) -> PoolSettings:
    """Return a pool's settings for the platform."""
    fabric = {names.FABRIC_LABEL: pool.fabric} if pool.accelerator else {}
    model = pool.accelerator and pool.accelerator.model
    resource = catalog.accelerator(model).resource if model else NVIDIA_RESOURCE
    return make_pool_settings(
        pool,
        labels={**pool_labels(pool), **fabric},
        # With server-side apply a node's taints have one owner, maybe not the stack: users set them.
        cloud_taints=(resource,) if pool.accelerator else (),
        accelerator_resource=resource,
        node_names=tuple(_nodes(pool.name, spec.leaves or ())),
    )


def node_labels(pool: PoolSettings, leaves: Sequence[LeafSpec]) -> dict[str, dict[str, str]]:
    """Node → its labels: those of its pool, its leaf switch and its spine switch."""
    return {
        node: {**pool.labels, names.LEAF_LABEL: leaf.name, names.SPINE_LABEL: leaf.spine}
        for leaf in leaves
        for node in leaf.nodes.get(pool.name, ())
    }


def topology(spec: OnpremSpec) -> tuple[str, ...]:
    """Return the labels of the network's levels, the widest first."""
    levels = spec.topology or ((names.SPINE_LABEL, names.LEAF_LABEL) if spec.leaves else ())
    return (*levels, names.HOSTNAME_LABEL)


def _nodes(pool: str, leaves: Sequence[LeafSpec]) -> Iterator[str]:
    for leaf in leaves:
        yield from leaf.nodes.get(pool, ())
