"""Pulumi resource types of CoreWeave node pools, and which changes resize or replace their nodes."""

from __future__ import annotations

from collections.abc import Mapping

from infra.targets.pool_types import PoolChanges, PoolType

POOL_TYPES: Mapping[str, PoolChanges] = {
    # CoreWeave: Node Pool reference; class and type of its instances cannot be changed.
    "kubernetes:compute.coreweave.com/v1alpha1:NodePool": PoolType(
        labels="spec.nodeLabels",
        sizes=["spec.maxNodes", "spec.targetNodes"],
        replaced="its jobs are evicted; old nodes are deleted before new ones start",
    )
}
