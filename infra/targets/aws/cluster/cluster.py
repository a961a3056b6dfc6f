"""The AWS target's cluster component: keys, network, EKS control plane, identities, node groups, add-ons,
storage.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar, cast

import pulumi
import pulumi_aws as aws

import catalog
from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.kubernetes_objects import claim_and_connect
from infra.operator_settings.node_software import NodeSoftwareSettings, mirror_of
from infra.stackfile import Stack
from infra.stackfile.fabric import FabricClass
from infra.stackfile.storage import LifecycleSpec, StorageSpec
from infra.stackfile.target import TargetKind
from infra.targets.aws.cluster import autoscaler
from infra.targets.aws.cluster.addons import create_node_addons, create_system_addons
from infra.targets.aws.cluster.autoscaler import autoscaler_identity
from infra.targets.aws.cluster.bucket import make_bucket
from infra.targets.aws.cluster.control_plane import (
    ControlPlane,
    group_of,
    kubeconfig,
    make_control_plane,
    use_control_plane,
)
from infra.targets.aws.cluster.fabric import efa_security_group
from infra.targets.aws.cluster.filesystem import (
    back_up,
    efs_volumes,
    link_bucket,
    lustre_volumes,
    make_efs,
    make_lustre,
    use_efs,
    use_lustre,
)
from infra.targets.aws.cluster.identity import POD_IDENTITY, associate, datasets_role, node_role, team_role
from infra.targets.aws.cluster.interruption import make_queue
from infra.targets.aws.cluster.keys import Keys, make_keys
from infra.targets.aws.cluster.network import make_network
from infra.targets.aws.cluster.pools import NodeGroupDeps, node_group, pool_settings
from infra.targets.aws.cluster.scope import Scope, tags_of
from infra.targets.aws.stackfile.groups import groups
from infra.targets.aws.stackfile.registries import PINNED_AT, registry_of
from infra.targets.aws.stackfile.target import AwsSpec, EfsSpec, LustreSpec
from infra.targets.base import (
    INTERNET,
    Cluster,
    ClusterOutputs,
    ClusterSettings,
    Destination,
    DevicePlugin,
    ObjectStoreOutputs,
    PoolSettings,
    StorageClass,
    VolumeSource,
)

NETWORK_LAYERS = tuple(f"topology.k8s.aws/network-node-layer-{layer}" for layer in (1, 2, 3))
"""EKS's labels for the position of a node with EFA in EC2's network, widest layer first."""


class AwsCluster(Cluster):
    """EKS in one region, its nodes in managed groups."""

    KIND: ClassVar[TargetKind] = "aws"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(AwsSpec, stack.target)
        self.pools = {pool.name: pool_settings(pool) for pool in stack.pools}
        self.settings = _settings(stack, spec, self.pools)
        scope = _scope(stack, spec, self)
        keys = make_keys(scope)
        network = make_network(scope, keys, has_autoscaler=self.settings.autoscaler is not None)
        existing = spec.existing_cluster
        control_plane = (
            use_control_plane(scope, existing, stack.teams)
            if existing
            else make_control_plane(scope, network, keys, stack.teams)
        )
        config = kubeconfig(scope, control_plane)
        efa_group = efa_security_group(scope, network) if _has_efa(self.pools.values()) else None
        nodes = create_node_addons(scope, control_plane.cluster) if control_plane.cluster else []
        deps = NodeGroupDeps(scope, network, keys, control_plane, node_role(scope), efa_group, nodes)
        system = self._pools(stack, deps)
        self.access = claim_and_connect(stack.name, config, control_plane.cluster, self, system)
        bucket, second = stack.storage.object_store.bucket, spec.second_filesystem
        locks = make_bucket(scope, bucket, keys, stack.storage.object_store.lifecycle or LifecycleSpec())
        _identities(stack, scope, control_plane)
        self.outputs = ClusterOutputs(
            endpoint=control_plane.endpoint,
            ca_certificate=control_plane.ca_certificate,
            kubeconfig=config,
            volume_source=_filesystem(deps, spec.filesystem, stack.storage, locks),
            second_source=_filesystem(deps, second, stack.storage, locks) if second else None,
            object_store=ObjectStoreOutputs(f"https://s3.{spec.region}.amazonaws.com", bucket),
            # In an existing cluster, the disk driver and its storage classes belong to the cluster's owner.
            storage_classes=() if existing else (_disks(keys),),
        )
        queue = {"interruptionQueue": make_queue(scope, keys)} if spec.interruption_queue else {}
        self.register_outputs({"endpoint": self.outputs.endpoint, **queue})

    def _pools(self, stack: Stack, deps: NodeGroupDeps) -> list[pulumi.Resource]:
        """Make the pools, and return what objects of the cluster run on: the system pool and add-ons."""
        scope = deps.scope
        made: dict[str, list[pulumi.Resource]] = {
            pool.name: [
                node_group(deps, group, self.pools[pool.name]) for group in groups(pool, scope.spec.zones)
            ]
            for pool in stack.pools
        }
        system = next(pool.name for pool in stack.pools if pool.is_system)
        control_plane = deps.control_plane
        # EKS injects the credentials when a pod starts, and not later.
        identity = [autoscaler_identity(scope, control_plane.name)] if self.settings.autoscaler else []
        cluster = control_plane.cluster
        addons = create_system_addons(scope, cluster, made[system]) if cluster else []
        return [*made[system], *addons, *identity]


def _identities(stack: Stack, scope: Scope, control_plane: ControlPlane) -> None:
    """Let each team's jobs reach their part of the bucket, and those that stage datasets read these."""
    for team in stack.teams:
        role = team_role(scope, team.name, stack.storage.object_store.bucket)
        associate(
            scope,
            role,
            control_plane.name,
            namespace=names.team_namespace(team.name),
            service_account="default",
        )
    read = [each for each in stack.datasets if each.uses_identity]
    if read:
        associate(
            scope,
            datasets_role(scope, read),
            control_plane.name,
            namespace=names.STORAGE_NAMESPACE,
            service_account="default",
        )


def _scope(stack: Stack, spec: AwsSpec, parent: pulumi.Resource) -> Scope:
    provider = aws.Provider(
        stack.name,
        region=cast(aws.Region, spec.region),  # a string: the SDK's enum lacks some regions
        allowed_account_ids=[spec.account],
        default_tags=aws.ProviderDefaultTagsArgs(tags=tags_of(stack.name, spec)),
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return Scope(stack.name, spec.kubernetes_minor, provider, parent, spec)


def _settings(stack: Stack, spec: AwsSpec, pools: Mapping[str, PoolSettings]) -> ClusterSettings:
    jobs = [pool for pool in pools.values() if pool.accelerators_per_node]
    # Kueue's topology uses only nodes with all labels, and EC2 reports network layers only for EFA machines.
    layers = NETWORK_LAYERS if jobs and all(pool.fabric_class != "tcp" for pool in jobs) else ()
    plugins: list[DevicePlugin] = ["nvidia"] if jobs else []
    cluster = spec.existing_cluster.name if spec.existing_cluster else stack.name
    autoscaled = any(pool.is_autoscaled for pool in stack.pools)
    return ClusterSettings(
        name=stack.name,
        kubernetes_version=spec.rendered_version,
        topology_labels=(names.ZONE_LABEL, *layers, names.HOSTNAME_LABEL),
        data_dir="",
        training_image=spec.training_image,
        serves_object_store=False,
        device_plugins=(*plugins, *(("efa",) if any(_uses_device_plugin(pool) for pool in jobs) else ())),
        software=NodeSoftwareSettings(
            efa_resource_claims=_claimed(jobs),
            registries={PINNED_AT: registry_of(spec.region)},
            mirror=mirror_of(spec.mirror),
        ),
        autoscaler=autoscaler.settings(cluster, stack.name, spec.region) if autoscaled else None,
        provisioning_class="best-effort-atomic-scale-up.autoscaling.x-k8s.io" if autoscaled else "",
        destinations=(Destination(POD_IDENTITY, (80,)), Destination(INTERNET, (443,))),
        groups={principal: group_of(principal) for team in stack.teams for principal in team.groups},
    )


def _uses_device_plugin(pool: PoolSettings) -> bool:
    """Whether its pods get EFA from the device plugin."""
    return pool.fabric_class != "tcp" and catalog.fabric(pool.fabric_class).claim is None


def _claimed(pools: Iterable[PoolSettings]) -> tuple[FabricClass, ...]:
    """Fabric classes whose devices are claimed from the DRA driver."""
    return tuple(sorted({pool.fabric_class for pool in pools if catalog.fabric(pool.fabric_class).claim}))


def _has_efa(pools: Iterable[PoolSettings]) -> bool:
    return any(pool.fabric_class != "tcp" for pool in pools)


def _filesystem(
    deps: NodeGroupDeps, spec: LustreSpec | EfsSpec, storage: StorageSpec, locks: Sequence[pulumi.Resource]
) -> VolumeSource:
    """Make a filesystem, or use one that exists; no second one is linked to the same folder of the bucket."""
    scope, efa_group = deps.scope, deps.efa_group
    clients = {"cluster": deps.control_plane.security_group, **({"efa": efa_group.id} if efa_group else {})}
    days = spec.snapshot_retention_days(storage.checkpoints)
    if not isinstance(spec, LustreSpec):
        if spec.existing:
            return efs_volumes(use_efs(scope, spec, spec.existing, clients["cluster"]))
        made = make_efs(scope, spec, deps.network, deps.keys, clients=clients)
        if days:
            back_up(scope, spec, made, deps.keys, days)
        return efs_volumes(made.id)
    if spec.existing:
        return lustre_volumes(use_lustre(scope, spec, spec.existing, clients["cluster"]))
    filesystem = make_lustre(scope, spec, deps.network, deps.keys, clients=clients, snapshot_days=days)
    if spec.is_linked and spec is scope.spec.filesystem:
        link_bucket(scope, filesystem, storage.object_store.bucket, locks)
    return lustre_volumes(filesystem)


def _disks(keys: Keys) -> StorageClass:
    parameters = {"type": "gp3", "encrypted": "true", "kmsKeyId": keys.data}
    return StorageClass("disk", "ebs.csi.aws.com", parameters)
