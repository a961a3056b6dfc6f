"""CoreWeave node pools, declared as custom resources of the cluster.

Source: CoreWeave, Node Pool reference, read 2026-11-21.
"""

from dataclasses import replace
from typing import Any

import catalog
from infra.common import names
from infra.common.charts import Manifest
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.base import CAPACITY_MODES, PoolSettings, make_pool_settings, pool_labels, pool_taints

BOOT_SECONDS = 3600
"""Timeout for booting nodes in parallel; one node takes 20 to 30 minutes."""


def pool_settings(pool: NodePoolSpec) -> PoolSettings:
    """Return a pool's settings for the platform."""
    fabric = {names.FABRIC_LABEL: pool.fabric} if pool.accelerator else {}
    settings = make_pool_settings(
        pool,
        labels={**pool_labels(pool), **fabric},
        taints=pool_taints(pool),
        preemption_notice_seconds=catalog.usable_notice_seconds("coreweave") if pool.is_spot else None,
    )
    return replace(settings, capacity_mode=CAPACITY_MODES[pool.provisioning])


def _size(pool: NodePoolSpec) -> dict[str, Any]:
    """Return the number of nodes: the stack's, or the limits between which CKS's autoscaler sets it."""
    if not pool.provisioning:
        return {"targetNodes": pool.num_nodes, "autoscaling": False}
    return {"targetNodes": 0, "autoscaling": True, "minNodes": 0, "maxNodes": pool.num_nodes}


def node_pool(pool: NodePoolSpec, settings: PoolSettings) -> Manifest:
    """Return the NodePool; the system pool is waited for, since the operators run there."""
    annotations: dict[str, str] = {}
    if pool.is_system:
        annotations["pulumi.com/waitFor"] = f"jsonpath={{.status.currentNodes}}={pool.num_nodes}"
        annotations["pulumi.com/timeoutSeconds"] = str(BOOT_SECONDS)
    if pool.spot_waiver:
        annotations[names.SPOT_WAIVER] = pool.spot_waiver
    spec: dict[str, Any] = {
        # The default class also uses reserved instances.
        "computeClass": "spot" if pool.is_spot else "default",
        "instanceType": pool.machine,
        **_size(pool),
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
