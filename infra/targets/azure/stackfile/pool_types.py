"""Pulumi resource types of AKS agent pools, and which changes resize, roll or replace their nodes."""

from __future__ import annotations

from collections.abc import Mapping

from infra.targets.pool_types import PoolChanges, PoolType

POOL_TYPES: Mapping[str, PoolChanges] = {
    # AKS: labels, taints and the count change in place; a version upgrade replaces node by node.
    "azure-native:containerservice:AgentPool": PoolType(
        labels="nodeLabels",
        sizes=["maxCount", "count"],
        rolling=["orchestratorVersion", "osSKU"],
        replaced="its jobs are evicted; old nodes are deleted before new ones start",
    )
}
