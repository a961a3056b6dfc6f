"""Node pools: custom resources of the cluster itself (CoreWeave: Node Pool reference, read 2026-11-21)."""

from __future__ import annotations

from typing import Any

from infra import catalog, names
from infra.charts import Manifest
from infra.providers.base import PoolSettings
from infra.spec.node_pool import NodePoolSpec

SPOT_WAIVER = "trainyard.dev/spot-waiver"
"""Annotation that says why a spot pool is in one market."""
BOOT_SECONDS = 3600
"""A node boots in 20 to 30 minutes; several do so at once."""


def pool_settings(pool: NodePoolSpec) -> PoolSettings:
    """Return what the platform needs to know of a pool."""
    labels = {names.POOL_LABEL: pool.name, names.CAPACITY_LABEL: pool.capacity}
    taints = []
    if pool.accelerator:
        labels |= {names.ACCELERATOR_LABEL: pool.accelerator.model, names.FABRIC_LABEL: pool.fabric}
        taints.append({"key": names.ACCELERATOR_RESOURCE, "value": "present", "effect": "NoSchedule"})
    if pool.is_spot:
        taints.append({"key": names.SPOT_TAINT, "value": "true", "effect": "NoSchedule"})
    notice = catalog.notice("coreweave") if pool.is_spot else None
    return PoolSettings(
        name=pool.name,
        num_nodes=pool.num_nodes,
        capacity=pool.capacity,
        capacity_mode="fixed",
        fabric_class=pool.fabric,
        accelerators_per_node=pool.accelerator.count if pool.accelerator else 0,
        accelerator_resource=names.ACCELERATOR_RESOURCE,
        preemption_notice_seconds=notice.usable_seconds if notice else None,
        node_names=(),
        labels=labels,
        taints=tuple(taints),
    )


def node_pool(pool: NodePoolSpec, settings: PoolSettings) -> Manifest:
    """Return the NodePool; the system pool is waited for, since all else runs there."""
    annotations: dict[str, str] = {}
    if pool.capacity == "system":
        annotations["pulumi.com/waitFor"] = f"jsonpath={{.status.currentNodes}}={pool.num_nodes}"
        annotations["pulumi.com/timeoutSeconds"] = str(BOOT_SECONDS)
    if pool.spot_waiver:
        annotations[SPOT_WAIVER] = pool.spot_waiver
    spec: dict[str, Any] = {
        # Reserved instances are drawn on by the default class too.
        "computeClass": "spot" if pool.is_spot else "default",
        "instanceType": pool.machine,
        "targetNodes": pool.num_nodes,
        "autoscaling": False,
        "nodeLabels": dict(settings.labels),
        "nodeTaints": [dict(taint) for taint in settings.taints],
    }
    return {
        "apiVersion": "compute.coreweave.com/v1alpha1",
        "kind": "NodePool",
        "metadata": {
            "name": pool.name,
            "labels": {"app.kubernetes.io/managed-by": "trainyard"},
            **({"annotations": annotations} if annotations else {}),
        },
        "spec": spec,
    }
