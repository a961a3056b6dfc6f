"""Builds the stack outputs (endpoint, kubeconfig, stores, pools, queues), the same for every target."""

from typing import Any

import pulumi

from infra import team_queues
from infra.common import names
from infra.platform.storage.object_store import endpoint
from infra.stackfile import Stack
from infra.targets.base import Cluster


def stack_outputs(stack: Stack, cluster: Cluster) -> dict[str, Any]:
    """Return the stack's outputs: how to reach it, where checkpoints go, pools, queues, runtimes."""
    return {
        "name": stack.name,
        "kind": cluster.KIND,
        "place": stack.target.location,
        "endpoint": cluster.outputs.endpoint,
        "kubeconfig": pulumi.Output.secret(cluster.outputs.kubeconfig),
        "dataDir": cluster.settings.data_dir,
        "checkpoints": _checkpoints(stack, cluster),
        "objectStore": _object_store(stack, cluster),
        "datasets": {each.name: f"{names.DATASETS_MOUNT}/{each.path}" for each in stack.datasets},
        "pools": {name: _pool(cluster, name) for name in cluster.pools},
        "queues": {team.name: team_queues.exported(team) for team in stack.teams},
        "priorities": sorted(stack.priorities, key=lambda name: stack.priorities[name]),
        "runtimes": list(stack.runtimes),
    }


def _object_store(stack: Stack, cluster: Cluster) -> dict[str, Any]:
    store = cluster.outputs.object_store
    if store is not None:
        more = {"secret": store.secret, "outside": store.outside}
        known = {key: value for key, value in more.items() if value}
        return {"endpoint": store.endpoint, "bucket": store.bucket, **known}
    bucket = stack.storage.object_store.bucket
    return {"endpoint": endpoint(), "bucket": bucket, "secret": names.OBJECT_STORE}


def _checkpoints(stack: Stack, cluster: Cluster) -> dict[str, Any]:
    folder = f"{cluster.settings.data_dir}/checkpoints"
    return {
        "claim": names.CHECKPOINTS_CLAIM,
        "mount": names.CHECKPOINTS_MOUNT,
        "folders": {team.name: f"{folder}/{team.name}" for team in stack.teams},
    }


def _pool(cluster: Cluster, name: str) -> dict[str, Any]:
    pool = cluster.pools[name]
    return {
        "capacity": pool.capacity,
        "nodes": list(pool.node_names),
        "acceleratorsPerNode": pool.accelerators_per_node,
        "simulated": names.SIMULATED_LABEL in pool.labels,
        "preemptionNoticeSeconds": pool.preemption_notice_seconds,
    }
