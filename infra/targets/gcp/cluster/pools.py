"""Creates GKE node pools (machine types, drivers, capacity, autoscaling, placement, additional networks), and
returns each pool's labels, taints and sizes for the rest of the program.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp.compute._inputs import ResourcePolicyWorkloadPolicyArgs
from pulumi_gcp.compute.resource_policy import ResourcePolicy
from pulumi_gcp.container._inputs import (
    NodePoolAutoscalingArgs,
    NodePoolManagementArgs,
    NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs,
    NodePoolNetworkConfigArgs,
    NodePoolNodeConfigArgs,
    NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs,
    NodePoolNodeConfigGuestAcceleratorArgs,
    NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs,
    NodePoolNodeConfigGvnicArgs,
    NodePoolNodeConfigReservationAffinityArgs,
    NodePoolNodeConfigShieldedInstanceConfigArgs,
    NodePoolNodeConfigTaintArgs,
    NodePoolNodeConfigWorkloadMetadataConfigArgs,
    NodePoolPlacementPolicyArgs,
    NodePoolQueuedProvisioningArgs,
    NodePoolUpgradeSettingsArgs,
)
from pulumi_gcp.container.node_pool import NodePool

import catalog
from infra.common import names
from infra.stackfile.node_pool import MAX_RUN_HOURS, NodePoolSpec
from infra.targets.base import CAPACITY_MODES, TAINT_EFFECTS, PoolSettings, pool_labels, pool_taints
from infra.targets.gcp.cluster.control_plane import ControlPlane
from infra.targets.gcp.cluster.fabric import GkeNic
from infra.targets.gcp.cluster.keys import Keys
from infra.targets.gcp.cluster.scope import Scope
from infra.targets.gcp.stackfile.groups import GkePool

BOOT_DISK_GIB = 200
"""Size of a boot disk: images with CUDA and PyTorch are 10 to 20 GiB each, and an update keeps two."""
LOCAL_SSD_GIB = 375
"""Size of a local SSD, the same on all of these machine types (Compute Engine: local SSD)."""
HYPERDISK_ONLY = ("a3-ultragpu-", "a4-", "a4x-", "n4-", "ct6e-", "tpu7x-")
"""Machine types without support of Persistent Disk (Compute Engine: Hyperdisk, machine type support)."""
SLICES_BY_WORKLOAD_POLICY = ("tpu7x-",)
"""TPUs whose slices GKE refuses to place by a compact policy (GKE: multi-host slices of TPU7x)."""
MAX_NODE_POOL_NAME = 40
MAX_RESOURCE_NAME = 63
"""Maximum length of a name (Compute Engine, naming resources)."""
JOB_PODS, SYSTEM_PODS = 32, 110
"""Maximum number of pods per node, which sets the node's number of addresses (infra/common/subnets.py)."""

_TIMEOUTS = pulumi.CustomTimeouts(update="60m", delete="60m")
"""Timeouts of changes: a resize without capacity locks the node pool for 35 minutes
(engine/provider/node_pool_size.py)."""


@dataclass(frozen=True)
class NodePoolDeps:
    """Dependencies of node pools."""

    scope: Scope
    keys: Keys
    control_plane: ControlPlane
    node_identity: pulumi.Output[str]
    nics: Mapping[str, Sequence[GkeNic]]
    """Fabric class → additional network interfaces of its nodes."""


class NodePoolSize(pulumi.CustomResource):
    """The size of a node pool after its creation: a resource of our plugin."""

    def __init__(self, name: str, inputs: Mapping[str, object], opts: pulumi.ResourceOptions) -> None:
        super().__init__("trainyard:gcp:NodePoolSize", name, dict(inputs), opts)


def pool_settings(pool: NodePoolSpec) -> PoolSettings:
    """Return a pool's settings for the platform."""
    resource = catalog.fabric(pool.fabric).accelerator_resource
    fabric = {names.FABRIC_LABEL: pool.fabric} if pool.accelerator else {}
    return PoolSettings(
        name=pool.name,
        num_nodes=pool.num_nodes,
        capacity=pool.label,
        capacity_mode=CAPACITY_MODES[pool.provisioning],
        fabric_class=pool.fabric,
        accelerators_per_node=pool.accelerator.count if pool.accelerator else 0,
        accelerator_resource=resource,
        preemption_notice_seconds=catalog.usable_notice_seconds("gcp") if pool.is_spot else None,
        node_names=(),
        labels={**pool_labels(pool), **fabric},
        taints=pool_taints(pool, resource),
        cloud_labels=_slice_labels(pool),
        cloud_taints=_cloud_taints(pool),
    )


def _cloud_taints(pool: NodePoolSpec) -> tuple[str, ...]:
    """GKE itself taints queued nodes, and Arm nodes."""
    queued = ("cloud.google.com/gke-queued",) if pool.provisioning == "all-at-once" else ()
    return (*queued, "kubernetes.io/arch") if pool.architecture == "arm64" else queued


def _slice_labels(pool: NodePoolSpec) -> dict[str, str]:
    """GKE sets a pod's slice variables if the pod selects nodes by these."""
    if pool.topology is None or pool.machine is None:
        return {}
    accelerator = pool.known_machine("gcp").accelerator_type or ""
    return {
        "cloud.google.com/gke-tpu-accelerator": accelerator,
        "cloud.google.com/gke-tpu-topology": pool.topology,
    }


def node_pool(deps: NodePoolDeps, group: GkePool, settings: PoolSettings) -> NodePool:
    """Make a node pool."""
    scope, pool = deps.scope, group.pool
    is_system = pool.is_system
    begins_empty = bool(pool.provisioning) or group.grows_after_creation
    made = NodePool(
        scope.named(group.role),
        # An existing cluster has other pools, too.
        name=names.fit(
            scope.named(group.role) if scope.spec.existing_cluster else group.role, MAX_NODE_POOL_NAME
        ),
        cluster=deps.control_plane.name,
        location=scope.region,
        node_locations=list(group.zones),
        project=scope.project,
        node_count=None if begins_empty else group.num_nodes // len(group.zones),
        initial_node_count=0 if begins_empty else None,
        autoscaling=_autoscaling(group) if pool.provisioning else None,
        queued_provisioning=(
            NodePoolQueuedProvisioningArgs(enabled=True) if pool.provisioning == "all-at-once" else None
        ),
        max_pods_per_node=SYSTEM_PODS if is_system else JOB_PODS,
        management=NodePoolManagementArgs(
            auto_repair=pool.provisioning is None, auto_upgrade=scope.spec.release_channel != "none"
        ),
        upgrade_settings=_upgrades(pool),
        placement_policy=_placement(scope, group),
        network_config=_network(deps, pool),
        node_config=_node(deps, group, settings),
        opts=scope.options(
            # Names are unique, and there is seldom capacity for the old and the new pool.
            delete_before_replace=True,
            # GKE changes this field when a pool is resized, and a changed value would replace the pool
            # (google_container_node_pool, initial_node_count).
            ignore_changes=["initialNodeCount"] if group.grows_after_creation else None,
            custom_timeouts=_TIMEOUTS if group.grows_after_creation else None,
        ),
    )
    if group.grows_after_creation:
        _fill(scope, group, made)
    return made


def _fill(scope: Scope, group: GkePool, made: NodePool) -> None:
    """Have the nodes of a node pool that begins empty come as there are any."""
    NodePoolSize(
        scope.named(group.role),
        {
            "nodePool": made.id,
            "size": group.num_nodes,
            "zones": len(group.zones),
            "labels": {names.POOL_LABEL: group.pool.name},
        },
        # Trainyard's provider, not the Google Cloud provider of the scope.
        pulumi.ResourceOptions(parent=scope.parent, deleted_with=made),
    )


def _upgrades(pool: NodePoolSpec) -> NodePoolUpgradeSettingsArgs | None:
    """Remove a node before one is added (after, in the system pool): a surplus node may not be available.

    Provisioned nodes exist for at most a week: GKE has a separate strategy for them.
    """
    if pool.provisioning:
        return None
    more = int(pool.is_system)
    return NodePoolUpgradeSettingsArgs(strategy="SURGE", max_surge=more, max_unavailable=1 - more)


def _autoscaling(group: GkePool) -> NodePoolAutoscalingArgs:
    return NodePoolAutoscalingArgs(
        total_min_node_count=0, total_max_node_count=group.num_nodes, location_policy="ANY"
    )


def _placement(scope: Scope, group: GkePool) -> NodePoolPlacementPolicyArgs | None:
    topology = group.pool.topology
    if group.rack:
        return _by_workload(scope, group, f"1x{group.rack.nvlink_domain}")
    if not group.is_slice:
        return NodePoolPlacementPolicyArgs(type="COMPACT") if group.is_compact else None
    if not group.machine.name.startswith(SLICES_BY_WORKLOAD_POLICY):
        return NodePoolPlacementPolicyArgs(type="COMPACT", tpu_topology=topology)
    return _by_workload(scope, group, topology, tpu_topology=topology)


def _by_workload(
    scope: Scope, group: GkePool, topology: str | None, *, tpu_topology: str | None = None
) -> NodePoolPlacementPolicyArgs:
    """Place a node pool in one slice of TPUs, or in one rack of GPUs that NVLink joins."""
    policy = ResourcePolicy(
        scope.named(group.role, MAX_RESOURCE_NAME),
        workload_policy=ResourcePolicyWorkloadPolicyArgs(
            type="HIGH_THROUGHPUT", accelerator_topology=topology
        ),
        region=scope.region,
        project=scope.project,
        opts=scope.options(),
    )
    # GKE stores no type for a named policy; a type here would replace the pool on every `up`.
    return NodePoolPlacementPolicyArgs(type="", policy_name=policy.name, tpu_topology=tpu_topology)


def _network(deps: NodePoolDeps, pool: NodePoolSpec) -> NodePoolNetworkConfigArgs:
    nics = deps.nics.get(pool.fabric, ())
    additional = [
        NodePoolNetworkConfigAdditionalNodeNetworkConfigArgs(network=nic.vpc, subnetwork=nic.subnetwork)
        for nic in nics
    ]
    return NodePoolNetworkConfigArgs(
        enable_private_nodes=True,
        additional_node_network_configs=additional or None,
        accelerator_network_profile="auto" if catalog.fabric(pool.fabric).claim else None,
    )


def _node(deps: NodePoolDeps, group: GkePool, settings: PoolSettings) -> NodePoolNodeConfigArgs:
    pool, name = group.pool, group.machine.name
    hours = pool.max_run_hours or MAX_RUN_HOURS
    return NodePoolNodeConfigArgs(
        machine_type=name,
        image_type="COS_CONTAINERD",
        disk_type="hyperdisk-balanced" if name.startswith(HYPERDISK_ONLY) else "pd-balanced",
        disk_size_gb=BOOT_DISK_GIB,
        boot_disk_kms_key=deps.keys.data,
        ephemeral_storage_local_ssd_config=_local_ssds(group),
        guest_accelerators=_gpus(group),
        gvnic=NodePoolNodeConfigGvnicArgs(enabled=True),
        service_account=deps.node_identity,
        oauth_scopes=["https://www.googleapis.com/auth/cloud-platform"],
        workload_metadata_config=NodePoolNodeConfigWorkloadMetadataConfigArgs(mode="GKE_METADATA"),
        shielded_instance_config=NodePoolNodeConfigShieldedInstanceConfigArgs(
            enable_secure_boot=True, enable_integrity_monitoring=True
        ),
        spot=pool.is_spot or None,
        flex_start=True if pool.provisioning else None,
        max_run_duration=f"{hours * 3600}s" if pool.provisioning else None,
        reservation_affinity=_reservation(pool),
        labels={**settings.labels, **_more_labels(deps.scope, pool)},
        taints=[
            NodePoolNodeConfigTaintArgs(
                key=taint["key"], value=taint["value"], effect=TAINT_EFFECTS[taint["effect"]]
            )
            for taint in settings.taints
        ],
        resource_labels=deps.scope.labels,
        metadata={"disable-legacy-endpoints": "true"},
    )


def _more_labels(scope: Scope, pool: NodePoolSpec) -> dict[str, str]:
    claim = catalog.fabric(pool.fabric).claim
    dranet = {"cloud.google.com/gke-networking-dra-driver": "true"} if claim else {}
    in_one_zone = pool.is_spot and len(pool.zones or scope.spec.zones) == 1
    return {**dranet, **({names.SPOT_WAIVER: "fabric-ends-at-the-zone"} if in_one_zone else {})}


def _local_ssds(group: GkePool) -> NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs | None:
    """Local disks hold images, pods' scratch space and logs."""
    if not group.machine.local_nvme_gib:
        return None
    count = int(group.machine.local_nvme_gib) // LOCAL_SSD_GIB
    return NodePoolNodeConfigEphemeralStorageLocalSsdConfigArgs(local_ssd_count=count)


def _gpus(group: GkePool) -> list[NodePoolNodeConfigGuestAcceleratorArgs] | None:
    """GKE installs the driver and the device plugin itself; TPU nodes have theirs."""
    machine = group.machine
    if not machine.accelerator_type or machine.topologies:
        return None
    driver = NodePoolNodeConfigGuestAcceleratorGpuDriverInstallationConfigArgs(gpu_driver_version="LATEST")
    return [
        NodePoolNodeConfigGuestAcceleratorArgs(
            type=machine.accelerator_type,
            count=machine.num_accelerators,
            gpu_driver_installation_config=driver,
        )
    ]


def _reservation(pool: NodePoolSpec) -> NodePoolNodeConfigReservationAffinityArgs:
    """A pool that names no reservation uses none: reservations belong to others."""
    if pool.reservation is None:
        return NodePoolNodeConfigReservationAffinityArgs(consume_reservation_type="NO_RESERVATION")
    return NodePoolNodeConfigReservationAffinityArgs(
        consume_reservation_type="SPECIFIC_RESERVATION",
        key="compute.googleapis.com/reservation-name",
        values=[pool.reservation.id],
    )
