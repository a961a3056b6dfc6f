"""Renders the configuration of a kind cluster (Kubernetes in Docker) with the stack's nodes."""

from collections.abc import Iterable
from typing import Any

import yaml

from infra.targets.base import ClusterSettings, PoolSettings
from infra.targets.local.stackfile.target import LocalNetworkSpec


def render(settings: ClusterSettings, network: LocalNetworkSpec, pools: Iterable[PoolSettings]) -> str:
    """Return a file for `kind create cluster --config`: a control plane and one worker per node."""
    workers = [_worker(pool, settings.data_dir) for pool in pools for _ in range(pool.num_nodes)]
    image = f"kindest/node:v{settings.kubernetes_version}"
    config = {
        "kind": "Cluster",
        "apiVersion": "kind.x-k8s.io/v1alpha4",
        "name": settings.name,
        "networking": {"podSubnet": str(network.pod_cidr), "serviceSubnet": str(network.service_cidr)},
        "nodes": [{**node, "image": image} for node in ({"role": "control-plane"}, *workers)],
    }
    return yaml.safe_dump(config, sort_keys=False)


def _worker(pool: PoolSettings, data_dir: str) -> dict[str, Any]:
    taints = [dict(taint) for taint in pool.taints]
    joining = {"kind": "JoinConfiguration", "nodeRegistration": {"taints": taints}}
    return {
        "role": "worker",
        "labels": dict(pool.labels),
        "extraMounts": [{"hostPath": data_dir, "containerPath": data_dir}],
        "kubeadmConfigPatches": [yaml.safe_dump(joining, sort_keys=False)],
    }
