"""Declares EKS managed node groups with launch templates: sizes, AMI, disks, placement, market, reservation.
`pool_settings` gives the platform a pool's labels, taints and capacity mode.

EKS drains a spot node of a managed group before EC2 interrupts it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

import catalog
from infra.common import names
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.aws.cluster.autoscaler import GPU_LABEL, group_tags, let_it_resize
from infra.targets.aws.cluster.control_plane import ControlPlane
from infra.targets.aws.cluster.fabric import interfaces, placement_group
from infra.targets.aws.cluster.filling import fill
from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.network import Network
from infra.targets.aws.cluster.scope import Scope, tag_value
from infra.targets.aws.cluster.user_data import user_data
from infra.targets.aws.stackfile.groups import NodeGroup
from infra.targets.aws.stackfile.target import LustreSpec
from infra.targets.base import (
    TAINT_EFFECTS,
    CapacityMode,
    PoolSettings,
    make_pool_settings,
    pool_labels,
    pool_taints,
)

MAX_NODE_GROUP_NAME = 63
"""Maximum length of a node group's name (EKS user guide, managed node groups)."""
ROOT_DISK_GIB = 200
"""Size of a node's disk: images with CUDA and PyTorch are 10 to 20 GiB each, and an update keeps two."""
_ONE_MARKET = "one market per group: other markets of the pool are groups of their own"


@dataclass(frozen=True)
class NodeGroupDeps:
    """Dependencies of node groups."""

    scope: Scope
    network: Network
    keys: Keys
    control_plane: ControlPlane
    node_role: pulumi.Output[str]
    efa_group: aws.ec2.SecurityGroup | None
    depends_on: Sequence[pulumi.Resource]


def pool_settings(pool: NodePoolSpec) -> PoolSettings:
    """Return a pool's settings for the platform."""
    fabric = {names.FABRIC_LABEL: pool.fabric} if pool.accelerator else {}
    gpus = {GPU_LABEL: pool.accelerator.model} if pool.accelerator and pool.is_autoscaled else {}
    return make_pool_settings(
        pool,
        labels={**pool_labels(pool), **fabric, **gpus},
        taints=pool_taints(pool),
        preemption_notice_seconds=catalog.usable_notice_seconds("aws") if pool.is_spot else None,
        capacity_mode=_mode(pool),
    )


def _mode(pool: NodePoolSpec) -> CapacityMode:
    """Jobs in a queue get all their nodes at once; pods beside it one by one, as they wait."""
    if not pool.is_autoscaled:
        return "fixed"
    return "queued" if pool.accelerator else "autoscaled"


def node_group(deps: NodeGroupDeps, group: NodeGroup, settings: PoolSettings) -> aws.eks.NodeGroup:
    """Make a node group and its launch template."""
    scope = deps.scope
    template = _launch_template(deps, group)
    in_one_market = group.pool.is_spot and len(group.machines) * len(group.zones) == 1
    reason = group.pool.spot_waiver or _ONE_MARKET
    waiver = {names.SPOT_WAIVER: tag_value(reason)} if in_one_market else {}
    made = aws.eks.NodeGroup(
        scope.named(group.role, MAX_NODE_GROUP_NAME),
        cluster_name=deps.control_plane.name,
        node_role_arn=deps.node_role,
        subnet_ids=deps.network.subnet_ids(group.zones),
        version=scope.kubernetes_version,
        ami_type=_ami_type(group),
        capacity_type=_capacity_type(group),
        # A capacity block's launch template has the type, and EKS accepts it in one place only.
        instance_types=None if group.is_block else [machine.name for machine in group.machines],
        launch_template=aws.eks.NodeGroupLaunchTemplateArgs(
            id=template.id, version=template.latest_version.apply(str)
        ),
        scaling_config=_scaling(group),
        labels=dict(settings.labels),
        taints=[
            aws.eks.NodeGroupTaintArgs(
                key=taint["key"], value=taint["value"], effect=TAINT_EFFECTS[taint["effect"]]
            )
            for taint in settings.taints
        ],
        update_config=aws.eks.NodeGroupUpdateConfigArgs(max_unavailable=1),
        # One at a time: when many nodes fail at once, the cause is seldom in the nodes.
        node_repair_config=aws.eks.NodeGroupNodeRepairConfigArgs(
            enabled=True, max_parallel_nodes_repaired_count=1
        ),
        region=scope.region,
        tags={**waiver, **group_tags(group)} or None,
        opts=scope.options(depends_on=deps.depends_on, ignore_changes=_sizes_of_others(group)),
    )
    if group.is_autoscaled:
        let_it_resize(scope, group, made)
    if group.grows_after_creation:
        fill(scope, group, made)
    return made


def _sizes_of_others(group: NodeGroup) -> list[str] | None:
    """A size set by others is no drift: the autoscaler, or the schedule that fills the group."""
    if group.grows_after_creation:
        return ["scalingConfig"]
    return ["scalingConfig.desiredSize"] if group.is_autoscaled else None


def _scaling(group: NodeGroup) -> aws.eks.NodeGroupScalingConfigArgs:
    """Return the initial size of the group: empty if it grows after creation, else its minimum."""
    begins = group.min_nodes if group.is_autoscaled else group.num_nodes
    begins = 0 if group.grows_after_creation else begins
    return aws.eks.NodeGroupScalingConfigArgs(min_size=begins, desired_size=begins, max_size=group.num_nodes)


def _capacity_type(group: NodeGroup) -> str:
    if group.is_block:
        return "CAPACITY_BLOCK"
    return "SPOT" if group.pool.is_spot else "ON_DEMAND"


def _ami_type(group: NodeGroup) -> str:
    """EKS's AMIs of Amazon Linux 2023; those for NVIDIA have driver, toolkit and the host's part of EFA."""
    architecture = {"amd64": "x86_64", "arm64": "ARM_64"}[group.machine.architecture]
    return f"AL2023_{architecture}_{'NVIDIA' if group.machine.accelerator else 'STANDARD'}"


def _launch_template(deps: NodeGroupDeps, group: NodeGroup) -> aws.ec2.LaunchTemplate:
    scope, efa_group = deps.scope, deps.efa_group
    cluster_group = deps.control_plane.security_group
    has_efa = group.machine.efa is not None and efa_group is not None
    filesystem = scope.spec.filesystem
    uses_lustre_over_efa = has_efa and isinstance(filesystem, LustreSpec) and filesystem.efa
    name = scope.named(group.role)
    made_of_it = ("instance", "volume", "network-interface")
    return aws.ec2.LaunchTemplate(
        name,
        instance_type=group.machine.name if group.is_block else None,
        update_default_version=True,
        network_interfaces=interfaces(group.machine, cluster_group, efa_group.id)
        if has_efa and efa_group
        else None,
        vpc_security_group_ids=None if has_efa else [cluster_group],
        block_device_mappings=[_root_disk(deps.keys)],
        metadata_options=aws.ec2.LaunchTemplateMetadataOptionsArgs(
            # One hop: nodes can get their role's credentials, pods cannot.
            http_endpoint="enabled",
            http_tokens="required",
            http_put_response_hop_limit=1,
            # With an account's default of `enabled`, EC2 launches no instance that has a `/` in the key of a
            # tag (EC2 user guide, "View tags for your EC2 instances using instance metadata").
            instance_metadata_tags="disabled",
        ),
        user_data=user_data(group.machine, uses_lustre_over_efa=uses_lustre_over_efa),
        placement=_placement(scope, group),
        instance_market_options=_market(group),
        capacity_reservation_specification=_reservation(group),
        monitoring=aws.ec2.LaunchTemplateMonitoringArgs(enabled=True),
        tag_specifications=[
            aws.ec2.LaunchTemplateTagSpecificationArgs(resource_type=kind, tags={"Name": name, **scope.tags})
            for kind in made_of_it
        ],
        region=scope.region,
        opts=scope.options(),
    )


def _root_disk(keys: Keys) -> aws.ec2.LaunchTemplateBlockDeviceMappingArgs:
    disk = aws.ec2.LaunchTemplateBlockDeviceMappingEbsArgs(
        volume_type="gp3",
        volume_size=ROOT_DISK_GIB,
        encrypted="true",
        kms_key_id=keys.data,
        delete_on_termination="true",
    )
    return aws.ec2.LaunchTemplateBlockDeviceMappingArgs(device_name="/dev/xvda", ebs=disk)


def _placement(scope: Scope, group: NodeGroup) -> aws.ec2.LaunchTemplatePlacementArgs | None:
    """An on-demand reservation is placed only in its own group; only launches there use it (EC2, cr-cpg)."""
    existing = group.pool.reservation.placement_group if group.pool.reservation else None
    if not existing and not group.has_placement_group:
        return None
    name = existing or placement_group(scope, group.role).name
    return aws.ec2.LaunchTemplatePlacementArgs(group_name=name)


def _market(group: NodeGroup) -> aws.ec2.LaunchTemplateInstanceMarketOptionsArgs | None:
    if not group.is_block:
        return None
    return aws.ec2.LaunchTemplateInstanceMarketOptionsArgs(market_type="capacity-block")


def _reservation(group: NodeGroup) -> aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs | None:
    if group.pool.reservation is None:
        return None
    target = aws.ec2.LaunchTemplateCapacityReservationSpecificationCapacityReservationTargetArgs(
        capacity_reservation_id=group.pool.reservation.id
    )
    return aws.ec2.LaunchTemplateCapacityReservationSpecificationArgs(capacity_reservation_target=target)
