"""Declares AKS agent pools (size, autoscaling, taints, spot, reservation); each is one scale set and
InfiniBand domain.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pulumi
from pulumi_azure_native.containerservice._inputs import (
    AgentPoolUpgradeSettingsArgs,
    GPUProfileArgs,
    ManagedClusterAgentPoolProfileArgs,
)
from pulumi_azure_native.containerservice.agent_pool import AgentPool

import catalog
from infra.common import names
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.azure.cluster.control_plane import ControlPlane
from infra.targets.azure.cluster.dependencies import ClusterDeps
from infra.targets.azure.cluster.identity import grant
from infra.targets.azure.cluster.network import Network
from infra.targets.azure.cluster.scope import Scope
from infra.targets.base import CAPACITY_MODES, PoolSettings, make_pool_settings, pool_labels, pool_taints

SPOT_TAINT = "kubernetes.azure.com/scalesetpriority"
"""Label and taint that AKS puts on spot nodes."""
AGENT_POOL = "kubernetes.azure.com/agentpool"
"""Label with the agent pool of a node. InfiniBand does not cross scale sets."""
OS_DISK_GIB = 200
"""Size of a node's disk: an image with CUDA and PyTorch has 10 to 20 GiB, and an update keeps two."""
WAIVER = "infiniband-ends-at-the-scale-set"
"""Label with the reason for a spot pool in a single market; Azure tags cannot have such a key."""
PROVISIONING_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""ProvisioningRequest class for all nodes or none; AKS's autoscaler supports it from Kubernetes 1.33 on
(AKS: provision capacity for Kueue batch jobs with the cluster autoscaler, read 2026-11-22)."""
_NODE_RESOURCE = "k8s.io_cluster-autoscaler_node-template_resources_"
"""Scale set tag with a resource of future nodes; the autoscaler needs it to scale up from zero
(kubernetes/autoscaler, cloudprovider/azure)."""


class AgentPoolSize(pulumi.CustomResource):
    """Minimum size of an agent pool, set after its creation; a resource of Trainyard's own provider."""

    def __init__(self, name: str, inputs: Mapping[str, object], opts: pulumi.ResourceOptions) -> None:
        super().__init__("trainyard:azure:AgentPoolSize", name, dict(inputs), opts)


def pool_settings(pool: NodePoolSpec) -> PoolSettings:
    """Return the settings that the platform layer needs."""
    fabric = {names.FABRIC_LABEL: pool.fabric} if pool.accelerator else {}
    resource = catalog.fabric(pool.fabric).accelerator_resource
    settings = make_pool_settings(
        pool,
        labels={**pool_labels(pool), **fabric},
        taints=pool_taints(pool, resource),
        accelerator_resource=resource,
        preemption_notice_seconds=catalog.usable_notice_seconds("azure") if pool.is_spot else None,
        cloud_taints=(SPOT_TAINT,) if pool.is_spot else (),
    )
    return replace(settings, capacity_mode=CAPACITY_MODES[pool.provisioning])


def system_pool(
    scope: Scope, network: Network, pool: NodePoolSpec, settings: PoolSettings
) -> ManagedClusterAgentPoolProfileArgs:
    """Return the system pool, which AKS requires inside the cluster resource."""
    return ManagedClusterAgentPoolProfileArgs(
        name=names.agent_pool(pool.name),
        mode="System",
        upgrade_settings=AgentPoolUpgradeSettingsArgs(max_surge="1"),
        **_node(scope, network, pool, settings),
    )


def agent_pool(
    scope: Scope, deps: ClusterDeps, control_plane: ControlPlane, pool: NodePoolSpec, settings: PoolSettings
) -> AgentPool:
    """Declare the agent pool of a pool for jobs."""
    spot: dict[str, Any] = {}
    if pool.is_spot:
        # Deallocate would bring the node back under its old name, without its ephemeral disk. -1: the price
        # limit is the on-demand price.
        spot = {"scale_set_priority": "Spot", "scale_set_eviction_policy": "Delete", "spot_max_price": -1}
    made = AgentPool(
        scope.named(pool.name),
        agent_pool_name=names.agent_pool(pool.name),
        resource_group_name=deps.groups.cluster,
        resource_name_=control_plane.cluster.name,
        mode="User",
        capacity_reservation_group_id=pool.reservation.id if pool.reservation else None,
        # The GPU operators install the driver, with the module for GPUDirect RDMA.
        gpu_profile=GPUProfileArgs(driver="None") if pool.accelerator else None,
        # No surge: GPU nodes beyond the quota are scarce, so a node is removed before its replacement.
        upgrade_settings=None
        if pool.is_spot
        else AgentPoolUpgradeSettingsArgs(max_surge="0", max_unavailable="1"),
        **spot,
        **{**_node(scope, deps.network, pool, settings), **_size(scope, pool, settings)},
        opts=scope.options(
            depends_on=_reservation_rights(scope, deps, pool),
            # Names are unique, and there is seldom capacity for the old and the new pool.
            delete_before_replace=True,
            # Sizes are set by the autoscaler and by AgentPoolSize, and are not drift.
            ignore_changes=_ignored_changes(pool),
        ),
    )
    if _grows_after_creation(pool):
        _set_size(scope, pool, made)
    return made


def _ignored_changes(pool: NodePoolSpec) -> list[str] | None:
    if _grows_after_creation(pool):
        return ["count", "minCount"]
    return ["count"] if pool.provisioning else None


def _grows_after_creation(pool: NodePoolSpec) -> bool:
    """Whether the pool is created empty and grows as spot capacity becomes available.

    The autoscaler adds the nodes up to the minimum that AgentPoolSize sets, so `up` does not wait for them.
    Reserved and on-demand pools have a fixed size: the autoscaler must not remove nodes that cost anyway.
    """
    return pool.is_spot and not pool.provisioning


def _set_size(scope: Scope, pool: NodePoolSpec, made: AgentPool) -> None:
    AgentPoolSize(
        scope.named(pool.name),
        {"agentPool": made.id, "size": pool.num_nodes, "labels": {names.POOL_LABEL: pool.name}},
        # Trainyard's provider, not the Azure provider of the scope.
        pulumi.ResourceOptions(parent=scope.parent, deleted_with=made),
    )


def _size(scope: Scope, pool: NodePoolSpec, settings: PoolSettings) -> dict[str, Any]:
    """Return the autoscaling properties; empty for a pool of fixed size."""
    if not pool.provisioning and not _grows_after_creation(pool):
        return {}
    asked = {**catalog.fabric(pool.fabric).resources}
    asked |= {settings.accelerator_resource: settings.accelerators_per_node} if pool.accelerator else {}
    requested = {f"{_NODE_RESOURCE}{name.replace('/', '_')}": str(count) for name, count in asked.items()}
    return {
        # AKS requires a count at creation.
        "count": 0,
        "enable_auto_scaling": True,
        "min_count": 0,
        "max_count": pool.num_nodes,
        "tags": {**scope.tags, **requested},
    }


def _reservation_rights(scope: Scope, deps: ClusterDeps, pool: NodePoolSpec) -> list[pulumi.Resource]:
    """Let the control plane create nodes in the pool's capacity reservation group."""
    if pool.reservation is None:
        return []
    name, identity = f"control-plane-{pool.name}", deps.identities.control_plane
    return [grant(scope, name, identity, "Contributor", pool.reservation.id)]


def _node(scope: Scope, network: Network, pool: NodePoolSpec, settings: PoolSettings) -> dict[str, Any]:
    """Return the properties that the system pool and other pools share."""
    taints = [f"{taint['key']}={taint['value']}:{taint['effect']}" for taint in settings.taints]
    taints += [f"{SPOT_TAINT}=spot:NoSchedule"] if pool.is_spot else []
    zones = list(pool.zones or scope.spec.zones)
    waiver = {names.SPOT_WAIVER: WAIVER} if pool.is_spot and pool.fabric != "tcp" else {}
    return {
        "type": "VirtualMachineScaleSets",
        "vm_size": pool.machine,
        "count": pool.num_nodes,
        "availability_zones": zones or None,
        "vnet_subnet_id": network.nodes,
        "orchestrator_version": scope.kubernetes_version,
        "os_type": "Linux",
        # The Kubernetes version determines the Ubuntu version; drivers are built for NODE_OS.
        "os_sku": "Ubuntu",
        # Only GPU machines have a local disk of this size.
        "os_disk_type": "Ephemeral" if pool.accelerator else "Managed",
        "os_disk_size_gb": OS_DISK_GIB,
        "enable_encryption_at_host": True,
        "enable_node_public_ip": False,
        "enable_auto_scaling": False,
        "node_labels": {**settings.labels, **waiver},
        "node_taints": taints or None,
        "tags": scope.tags,
    }
