"""The Pulumi resource type by which a stack changes on-premises nodes: patches of node labels."""

from __future__ import annotations

from collections.abc import Mapping

from infra.targets.pool_types import PoolChanges, PoolType

POOL_TYPES: Mapping[str, PoolChanges] = {
    # Labels and taints are set on existing nodes, and removed from them.
    "kubernetes:core/v1:NodePatch": PoolType(
        labels="metadata.labels", sizes=[], replaced="labels and taints are removed and set again"
    )
}
