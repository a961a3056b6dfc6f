"""The Azure target's cluster component: resource groups, identities, network, keys, AKS control plane, pools,
storage, and the operators' settings.
"""

from collections.abc import Mapping
from typing import ClassVar, cast

import pulumi
from pulumi_azure_native.provider import Provider as AzureProvider

import catalog
from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.kubernetes_objects import claim_and_connect
from infra.common.subnets import aks_ranges
from infra.operator_settings.amd_operator import AmdOperatorSettings
from infra.operator_settings.gpu_operator import GpuOperatorSettings
from infra.operator_settings.network_operator import NetworkOperatorSettings
from infra.operator_settings.node_software import NodeSoftwareSettings, mirror_of
from infra.stackfile import Stack
from infra.stackfile.storage import LifecycleSpec
from infra.stackfile.target import TargetKind
from infra.targets.azure.cluster.bucket import BucketIds, make_bucket
from infra.targets.azure.cluster.control_plane import ControlPlane, kubeconfig, make_control_plane
from infra.targets.azure.cluster.dependencies import ClusterDeps, make_dependencies
from infra.targets.azure.cluster.filesystem import make_filesystem
from infra.targets.azure.cluster.identity import (
    CLIENT_ID,
    USES_IDENTITY,
    datasets_identity,
    human_access,
    team_identity,
    trainer_role,
)
from infra.targets.azure.cluster.logs import keep_logs
from infra.targets.azure.cluster.pools import (
    AGENT_POOL,
    PROVISIONING_CLASS,
    agent_pool,
    pool_settings,
    system_pool,
)
from infra.targets.azure.cluster.scope import Scope
from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.base import (
    INTERNET,
    NVIDIA_RESOURCE,
    Cluster,
    ClusterOutputs,
    ClusterSettings,
    Destination,
    ObjectStoreOutputs,
    PoolSettings,
    StorageClass,
    memory_lock,
    render_group,
)

NIC_DEVICE_IDS = ("101c", "101e")
"""PCI IDs of InfiniBand NICs in VMs: ConnectX-6 and -7 as virtual functions. NVIDIA's NICs of the ordinary
network have other IDs and must keep their driver."""
DRIVER_ENVIRONMENT = {"OFED_BLACKLIST_MODULES_FILE": "/host/etc/modprobe.d/blacklist-ofed-modules.conf"}
"""Variables of the NIC driver's container that put the blacklist of modules on the node, not into the
container: the node's own modules must not be loaded before the driver's (Azure/aks-rdma-infiniband,
configs/nicclusterpolicy/base/nic.yaml, which names Mellanox/doca-driver-build#52; read 2026-11-23)."""
NODE_OS = "ubuntu24.04"
"""Operating system of AKS's `Ubuntu` nodes since Kubernetes 1.35."""


class AzureCluster(Cluster):
    """AKS in one region, its nodes in agent pools; NVIDIA's operators install drivers of GPUs and NICs."""

    KIND: ClassVar[TargetKind] = "azure"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(AzureSpec, stack.target)
        self.pools = {pool.name: pool_settings(pool) for pool in stack.pools}
        self.settings = _settings(stack, spec, self.pools)
        scope = _scope(stack, spec, self)
        deps = make_dependencies(scope)
        control_plane = self._control_plane(scope, deps, stack)
        made = {
            pool.name: agent_pool(scope, deps, control_plane, pool, self.pools[pool.name])
            for pool in stack.pools
            if not pool.is_system
        }
        # AKS installs the ProvisioningRequest CRD with its first autoscaled pool; Kueue looks for it only at
        # start.
        scaled = [made[pool.name] for pool in stack.pools if pool.provisioning]
        config = kubeconfig(scope, control_plane)
        self.access = claim_and_connect(stack.name, config, control_plane.cluster, self, scaled)
        teams = [team.name for team in stack.teams]
        bucket = stack.storage.object_store.bucket
        lifecycle = stack.storage.object_store.lifecycle or LifecycleSpec()
        store = make_bucket(scope, deps, bucket, lifecycle)
        checkpoints, second = stack.storage.checkpoints, spec.second_filesystem
        self.outputs = ClusterOutputs(
            endpoint=control_plane.endpoint,
            ca_certificate=control_plane.ca_certificate,
            kubeconfig=config,
            volume_source=make_filesystem(scope, spec.filesystem, deps, teams, checkpoints),
            second_source=make_filesystem(scope, second, deps, teams, checkpoints) if second else None,
            object_store=ObjectStoreOutputs(f"https://{spec.storage_account}.blob.core.windows.net", bucket),
            storage_classes=(_disks(deps.disks),),
            service_accounts=_identities(stack, scope, deps, control_plane, store),
        )
        self.register_outputs({"endpoint": self.outputs.endpoint})

    def _control_plane(self, scope: Scope, deps: ClusterDeps, stack: Stack) -> ControlPlane:
        (system,) = (pool for pool in stack.pools if pool.is_system)
        profile = system_pool(scope, deps.network, system, self.pools[system.name])
        made = make_control_plane(scope, deps, profile)
        keep_logs(scope, deps.groups, made.cluster)
        human_access(scope, made.cluster.id, stack.teams)
        return made


def _identities(
    stack: Stack, scope: Scope, deps: ClusterDeps, control_plane: ControlPlane, store: BucketIds
) -> dict[str, dict[str, pulumi.Input[str]]]:
    """Let each team's jobs reach their part of the container, and those that stage datasets read these."""
    group, issuer = deps.groups.cluster, control_plane.issuer
    role = trainer_role(scope, scope.spec.storage_group or deps.groups.data)
    made = {
        names.team_namespace(team.name): team_identity(
            scope, team.name, group, issuer, container=store.container, role=role
        )
        for team in stack.teams
    }
    read = [each for each in stack.datasets if each.uses_identity]
    if read:
        made[names.STORAGE_NAMESPACE] = datasets_identity(
            scope, read, group, issuer, own_account=store.account
        )
    return {namespace: {CLIENT_ID: each.client_id} for namespace, each in made.items()}


def _scope(stack: Stack, spec: AzureSpec, parent: pulumi.Resource) -> Scope:
    provider = AzureProvider(
        stack.name,
        subscription_id=spec.subscription,
        tenant_id=spec.tenant,
        location=spec.region,
        disable_pulumi_partner_id=True,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return Scope(stack.name, spec.kubernetes_minor, provider, parent, spec)


def _settings(stack: Stack, spec: AzureSpec, pools: Mapping[str, PoolSettings]) -> ClusterSettings:
    fabrics = sorted({pool.fabric_class for pool in pools.values() if pool.accelerators_per_node})
    on_infiniband = bool(fabrics) and "tcp" not in fabrics
    return ClusterSettings(
        name=stack.name,
        kubernetes_version=spec.rendered_version,
        topology_labels=(AGENT_POOL if on_infiniband else names.ZONE_LABEL, names.HOSTNAME_LABEL),
        # All pods of a job are in one scale set: InfiniBand does not connect two.
        required_topology=AGENT_POOL if on_infiniband else "",
        provisioning_class=PROVISIONING_CLASS,
        data_dir="",
        training_image=spec.training_image,
        training_images={catalog.accelerator_resource("amd"): spec.amd.training_image} if spec.amd else {},
        device_groups=render_group(spec.amd),
        serves_object_store=False,
        device_plugins=memory_lock(pools.values()),
        environment={"AZURE_STORAGE_ACCOUNT_NAME": spec.storage_account},
        pod_labels=USES_IDENTITY,
        software=_software(stack, spec, pools),
        destinations=tuple(Destination(each, (443,)) for each in (*_endpoints(spec), INTERNET)),
    )


def _endpoints(spec: AzureSpec) -> list[str]:
    """The subnet of the storage account's private endpoint; of subnets that exist, the stack names it."""
    network = spec.network
    return [] if network.existing else [str(aks_ranges(network.cidr).endpoints)]


def _software(stack: Stack, spec: AzureSpec, pools: Mapping[str, PoolSettings]) -> NodeSoftwareSettings:
    with_gpus = [pool for pool in pools.values() if pool.accelerators_per_node]
    nics = NetworkOperatorSettings(
        access="functions",
        device_ids=NIC_DEVICE_IDS,
        installs_driver=True,
        # Pools may be empty: queued ones until a job waits, spot ones while Azure has no capacity.
        waits_for_nics=False,
        driver_environment=DRIVER_ENVIRONMENT,
    )
    nvidia = any(pool.accelerator_resource == NVIDIA_RESOURCE for pool in with_gpus)
    return NodeSoftwareSettings(
        network_operator=nics if any(pool.fabric_class != "tcp" for pool in with_gpus) else None,
        gpu_operator=GpuOperatorSettings(installs_driver=True, has_service_monitor=False) if nvidia else None,
        amd_operator=_amd(stack, spec),
        installs_lustre_driver=spec.filesystem.kind == "lustre",
        mirror=mirror_of(spec.mirror),
        node_os=NODE_OS,
        # Spot nodes have AKS's own taint. A node that is being deleted needs the drivers until its end.
        tolerates_all=True,
    )


def _amd(stack: Stack, spec: AzureSpec) -> AmdOperatorSettings | None:
    amd = spec.amd
    if amd is None:
        return None
    accelerators = {pool.accelerator.model for pool in stack.pools if pool.accelerator}
    models = sorted(each for each in accelerators if catalog.accelerator(each).vendor == "amd")
    return AmdOperatorSettings(
        amd.device_plugin,
        amd.node_labeller,
        amd.metrics_exporter,
        amd.utils,
        has_service_monitor=False,
        has_virtual_functions=True,
        driver_for=tuple(models),
    )


def _disks(encryption: pulumi.Input[str]) -> StorageClass:
    parameters = {"skuName": "Premium_LRS", "diskEncryptionSetID": encryption}
    return StorageClass("disk", "disk.csi.azure.com", parameters)
