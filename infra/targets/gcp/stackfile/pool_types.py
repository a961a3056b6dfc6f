"""Pulumi resource types of GKE node pools, and which of their changes replace or roll nodes."""

from __future__ import annotations

from collections.abc import Mapping

from infra.targets.pool_types import PoolChanges, PoolType, Resized

POOL_TYPES: Mapping[str, PoolChanges] = {
    # GKE: nodePools.update rolls for a node's configuration, by surge; labels and taints are set on nodes.
    "gcp:container/nodePool:NodePool": PoolType(
        labels="nodeConfig.labels",
        # A node pool that begins empty is sized by a separate resource.
        sizes=["nodeCount", "autoscaling.totalMaxNodeCount"],
        per_zone="nodeLocations",
        rolling=["nodeConfig", "version"],
        in_place=["nodeConfig.labels", "nodeConfig.taints", "nodeConfig.resourceLabels", "nodeConfig.tags"],
        replaced="its jobs are evicted; old nodes are deleted before new ones start",
    ),
    "trainyard:gcp:NodePoolSize": Resized(),
}
