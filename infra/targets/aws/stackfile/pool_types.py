"""Pulumi resource types of AWS node groups, and which changes resize, roll or replace their nodes."""

from __future__ import annotations

from collections.abc import Mapping

from infra.targets.pool_types import PoolChanges, PoolType, Resized

POOL_TYPES: Mapping[str, PoolChanges] = {
    # EKS: UpdateNodegroupVersion rolls, UpdateNodegroupConfig does not; a deleted group drains its nodes.
    "aws:eks/nodeGroup:NodeGroup": PoolType(
        labels="labels",
        sizes=["scalingConfig.maxSize", "scalingConfig.desiredSize"],
        rolling=["launchTemplate", "version", "releaseVersion"],
        replaced="new nodes are created, then old ones drained, 5 min each at most",
    ),
    "trainyard:aws:NodeGroupSize": Resized(),
}
