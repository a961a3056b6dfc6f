"""AKS agent pools: machines, disks, how they are bought; each is one scale set, and one InfiniBand domain."""

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
from infra import names
from infra.spec.node_pool import NodePoolSpec
from infra.targets.azure.cluster.control_plane import ControlPlane
from infra.targets.azure.cluster.dependencies import ClusterDeps
from infra.targets.azure.cluster.identity import grant
from infra.targets.azure.cluster.network import Network
from infra.targets.azure.cluster.scope import Scope
from infra.targets.base import CAPACITY_MODES, PoolSettings, fixed_pool, pool_labels, pool_taints

SPOT_TAINT = "kubernetes.azure.com/scalesetpriority"
"""What AKS itself puts on spot nodes, as a label and as a taint."""
AGENT_POOL = "kubernetes.azure.com/agentpool"
"""The scale set of a node: InfiniBand ends there."""
OS_DISK_GIB = 200
"""Images with CUDA and PyTorch are 10 to 20 GiB each, and an update keeps two."""
WAIVER = "infiniband-ends-at-the-scale-set"
"""Why a spot pool is in one market; a tag of Azure could not have the key."""
PROVISIONING_CLASS = "best-effort-atomic-scale-up.autoscaling.x-k8s.io"
"""Class of ProvisioningRequests that AKS's autoscaler answers from Kubernetes 1.33 on, all nodes or none
(AKS: provision capacity for Kueue batch jobs with the cluster autoscaler, read 2026-11-22)."""
_NODE_RESOURCE = "k8s.io_cluster-autoscaler_node-template_resources_"
"""Tag of a scale set that says what its nodes will have: with none there, the autoscaler cannot look
(kubernetes/autoscaler, cloudprovider/azure)."""


class AgentPoolSize(pulumi.CustomResource):
    """How many nodes an agent pool is to have, once it is there; of our own plugin."""

    def __init__(self, name: str, inputs: Mapping[str, object], opts: pulumi.ResourceOptions) -> None:
        super().__init__("trainyard:azure:AgentPoolSize", name, dict(inputs), opts)


def pool_settings(pool: NodePoolSpec) -> PoolSettings:
    """Return what the platform needs to know of a pool."""
    fabric = {names.FABRIC_LABEL: pool.fabric} if pool.accelerator else {}
    resource = catalog.fabric(pool.fabric).accelerator_resource
    settings = fixed_pool(
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
    """Return the pool that AKS insists on having in the cluster itself."""
    return ManagedClusterAgentPoolProfileArgs(
        name=names.agent_pool(pool.name),
        mode="System",
        upgrade_settings=AgentPoolUpgradeSettingsArgs(max_surge="1"),
        **_node(scope, network, pool, settings),
    )


def agent_pool(
    scope: Scope,
    deps: ClusterDeps,
    control_plane: ControlPlane,
    pool: NodePoolSpec,
    settings: PoolSettings,
) -> AgentPool:
    """Make a pool of jobs."""
    spot: dict[str, Any] = {}
    if pool.is_spot:
        # A node that is deallocated would come back under its old name with a dead disk. -1: at most the
        # price on demand.
        spot = {"scale_set_priority": "Spot", "scale_set_eviction_policy": "Delete", "spot_max_price": -1}
    made = AgentPool(
        scope.named(pool.name),
        agent_pool_name=names.agent_pool(pool.name),
        resource_group_name=deps.groups.cluster,
        resource_name_=control_plane.cluster.name,
        mode="User",
        capacity_reservation_group_id=pool.reservation.id if pool.reservation else None,
        # The vendors' operators bring the driver, with the module that GPUDirect RDMA needs.
        gpu_profile=GPUProfileArgs(driver="None") if pool.accelerator else None,
        # A node more than was bought cannot be had where nodes are scarce: one goes before one comes.
        upgrade_settings=None
        if pool.is_spot
        else AgentPoolUpgradeSettingsArgs(max_surge="0", max_unavailable="1"),
        **spot,
        **{**_node(scope, deps.network, pool, settings), **_size(scope, pool, settings)},
        opts=scope.options(
            depends_on=_reservation_rights(scope, deps, pool),
            # Two of a name cannot be, and seldom are there machines for two.
            delete_before_replace=True,
            # What the autoscaler did is no drift, nor is the minimum that was raised afterwards.
            ignore_changes=_ignored_changes(pool),
        ),
    )
    if _is_filled(pool):
        _fill(scope, pool, made)
    return made


def _ignored_changes(pool: NodePoolSpec) -> list[str] | None:
    if _is_filled(pool):
        return ["count", "minCount"]
    return ["count"] if pool.provisioning else None


def _is_filled(pool: NodePoolSpec) -> bool:
    """Whether it begins empty and gets its nodes as there are any, without anything waiting for them.

    Spot alone: by the autoscaler, which may take no part in what was paid for.
    """
    return pool.is_spot and not pool.provisioning


def _fill(scope: Scope, pool: NodePoolSpec, made: AgentPool) -> None:
    AgentPoolSize(
        scope.named(pool.name),
        {"agentPool": made.id, "size": pool.num_nodes, "labels": {names.POOL_LABEL: pool.name}},
        # Its provider is the plugin of ours, and not the scope's.
        pulumi.ResourceOptions(parent=scope.parent, deleted_with=made),
    )


def _size(scope: Scope, pool: NodePoolSpec, settings: PoolSettings) -> dict[str, Any]:
    """As many nodes as the stack says, or as many as jobs need, and none for nobody."""
    if not pool.provisioning and not _is_filled(pool):
        return {}
    asked = {**catalog.fabric(pool.fabric).resources}
    asked |= {settings.accelerator_resource: settings.accelerators_per_node} if pool.accelerator else {}
    requested = {f"{_NODE_RESOURCE}{name.replace('/', '_')}": str(count) for name, count in asked.items()}
    return {
        # AKS insists on a count when a pool is made.
        "count": 0,
        "enable_auto_scaling": True,
        "min_count": 0,
        "max_count": pool.num_nodes,
        "tags": {**scope.tags, **requested},
    }


def _reservation_rights(scope: Scope, deps: ClusterDeps, pool: NodePoolSpec) -> list[pulumi.Resource]:
    """The control plane puts machines into a reservation that is somebody's."""
    if pool.reservation is None:
        return []
    name, identity = f"control-plane-{pool.name}", deps.identities.control_plane
    return [grant(scope, name, identity, "Contributor", pool.reservation.id)]


def _node(scope: Scope, network: Network, pool: NodePoolSpec, settings: PoolSettings) -> dict[str, Any]:
    """What pools inside and outside of the cluster's resource have alike."""
    taints = [f"{taint['key']}={taint['value']}:{taint['effect']}" for taint in settings.taints]
    taints += [f"{SPOT_TAINT}=spot:NoSchedule"] if pool.is_spot else []
    zones = list(pool.zones or scope.spec.zones)
    waiver = {names.SPOT_WAIVER: WAIVER} if pool.is_spot and pool.fabric != "none" else {}
    return {
        "type": "VirtualMachineScaleSets",
        "vm_size": pool.machine,
        "count": pool.num_nodes,
        "availability_zones": zones or None,
        "vnet_subnet_id": network.nodes,
        "orchestrator_version": scope.kubernetes_version,
        "os_type": "Linux",
        # Which Ubuntu it is follows the version of Kubernetes: drivers are built for NODE_OS.
        "os_sku": "Ubuntu",
        # GPU machines have room for it on their own disks; small ones have not.
        "os_disk_type": "Ephemeral" if pool.accelerator else "Managed",
        "os_disk_size_gb": OS_DISK_GIB,
        "enable_encryption_at_host": True,
        "enable_node_public_ip": False,
        "enable_auto_scaling": False,
        "node_labels": {**settings.labels, **waiver},
        "node_taints": taints or None,
        "tags": scope.tags,
    }
