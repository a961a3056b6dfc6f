"""The Google Cloud target's component: keys, networks, identities, GKE control plane, node pools and storage,
and the cluster's settings for the operators and queues.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, cast

import pulumi
from pulumi_gcp.provider import Provider as GcpProvider

from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.kubernetes_objects import claim_and_connect
from infra.operator_settings.dra_driver import DraDriverSettings
from infra.operator_settings.node_software import NodeSoftwareSettings, mirror_of
from infra.stackfile import Stack
from infra.stackfile.storage import LifecycleSpec
from infra.stackfile.target import TargetKind
from infra.targets.base import (
    INTERNET,
    NODE_LOCAL_DNS,
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
from infra.targets.gcp.cluster.bucket import make_bucket
from infra.targets.gcp.cluster.control_plane import kubeconfig, make_control_plane, use_control_plane
from infra.targets.gcp.cluster.fabric import cluster_mtu, make_fabrics, publish
from infra.targets.gcp.cluster.filesystem import make_filesystem
from infra.targets.gcp.cluster.identity import (
    METADATA_SERVER,
    break_glass,
    human_access,
    node_identity,
    read_datasets,
)
from infra.targets.gcp.cluster.keys import Keys, make_keys
from infra.targets.gcp.cluster.network import make_network
from infra.targets.gcp.cluster.pools import NodePoolDeps, node_pool, pool_settings
from infra.targets.gcp.cluster.scope import Scope, labels_of
from infra.targets.gcp.stackfile.groups import groups
from infra.targets.gcp.stackfile.target import GcpSpec

BLOCKS = tuple(f"cloud.google.com/gce-topology-{level}" for level in ("block", "subblock", "host"))
"""Labels with the location of a GPU node in Google Cloud's network, the widest first."""
RACKS = "roce-nvl72"
"""Fabric class of A4X."""
GPU_DRIVER = "/home/kubernetes/bin/nvidia"
"""Folder on a node in which GKE installs the GPU driver."""
_RACK_DRIVER = DraDriverSettings(GPU_DRIVER, RACKS, tolerates_all=True, needs_critical_quota=True)
"""DRA driver of racks; it tolerates all taints, since GKE taints Arm nodes."""
NODE_POOL = "cloud.google.com/gke-nodepool"
"""Label of a TPU node with its node pool, which is one slice."""
_PLUGINS: Mapping[str, tuple[DevicePlugin, ...]] = {
    "roce": ("gib", "memory-lock"),
    "roce-dra": ("gib", "memory-lock"),
    "roce-nvl72": ("gib-arm64", "memory-lock"),
    "tcpxo": ("tcpxo", "device-injector"),
}
"""Fabric class → device plugins that its nodes need; GKE itself installs drivers and plugins of GPUs and
TPUs."""


class GcpCluster(Cluster):
    """GKE in one region, its nodes in node pools."""

    KIND: ClassVar[TargetKind] = "gcp"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(GcpSpec, stack.target)
        self.pools = {pool.name: pool_settings(pool) for pool in stack.pools}
        self.settings = _settings(stack, spec, self.pools)
        scope = _scope(stack, spec, self)
        keys = make_keys(scope)
        network = make_network(scope, mtu=cluster_mtu(stack.pools))
        nics = make_fabrics(scope, stack.pools)
        identity = node_identity(scope)
        access, existing = human_access(scope, stack.teams), spec.existing_cluster
        control_plane = (
            use_control_plane(existing, access)
            if existing
            else make_control_plane(scope, network, keys, identity, access, has_multi_networking=bool(nics))
        )
        break_glass(scope)
        config = kubeconfig(scope, control_plane)
        made = self._pools(stack, NodePoolDeps(scope, keys, control_plane, identity, nics))
        self.access = claim_and_connect(stack.name, config, control_plane.cluster, self, made["system"])
        publish(self.access, self, [nic for of_class in nics.values() for nic in of_class])
        bucket, second = stack.storage.object_store.bucket, spec.second_filesystem
        make_bucket(
            scope,
            bucket,
            keys,
            [team.name for team in stack.teams],
            stack.storage.object_store.lifecycle or LifecycleSpec(),
        )
        read_datasets(scope, [each for each in stack.datasets if each.uses_identity])
        self.outputs = ClusterOutputs(
            endpoint=control_plane.endpoint,
            ca_certificate=control_plane.ca_certificate,
            kubeconfig=config,
            volume_source=make_filesystem(scope, spec.filesystem, network, keys),
            second_source=make_filesystem(scope, second, network, keys) if second else None,
            object_store=ObjectStoreOutputs("https://storage.googleapis.com", bucket),
            storage_classes=(_disks(keys),),
            bucket_source=_bucket_volumes(bucket),
        )
        self.register_outputs({"endpoint": self.outputs.endpoint})

    def _pools(self, stack: Stack, deps: NodePoolDeps) -> dict[str, list[pulumi.Resource]]:
        """Make the pools; `system` is the one on which objects of the cluster run."""
        made: dict[str, list[pulumi.Resource]] = {"system": [], "jobs": []}
        for pool in stack.pools:
            kind = "system" if pool.is_system else "jobs"
            for group in groups(pool, deps.scope.spec.zones):
                made[kind].append(node_pool(deps, group, self.pools[pool.name]))
        return made


def _scope(stack: Stack, spec: GcpSpec, parent: pulumi.Resource) -> Scope:
    provider = GcpProvider(
        stack.name,
        project=spec.project,
        region=spec.region,
        default_labels=labels_of(stack.name, spec),
        add_pulumi_attribution_label=False,
        opts=pulumi.ResourceOptions(parent=parent),
    )
    return Scope(stack.name, spec.kubernetes_minor, provider, parent, spec)


def _settings(stack: Stack, spec: GcpSpec, pools: Mapping[str, PoolSettings]) -> ClusterSettings:
    fabrics = sorted({pool.fabric_class for pool in pools.values() if pool.accelerators_per_node})
    plugins = dict.fromkeys(plugin for fabric in fabrics for plugin in _PLUGINS.get(fabric, ()))
    return ClusterSettings(
        name=stack.name,
        kubernetes_version=spec.rendered_version,
        topology_labels=_topology(fabrics),
        required_topology=NODE_POOL if fabrics == ["ici"] else "",
        provisioning_class="queued-provisioning.gke.io",
        # A rack is a subblock of Google Cloud's network.
        rack_label="",
        software=NodeSoftwareSettings(
            dra_driver=_RACK_DRIVER if RACKS in fabrics else None, mirror=mirror_of(spec.mirror)
        ),
        data_dir="",
        training_image=spec.training_image,
        serves_object_store=False,
        device_plugins=tuple(plugins),
        dns=(NODE_LOCAL_DNS, METADATA_SERVER),
        destinations=(Destination(METADATA_SERVER, (80, 8080)), Destination(INTERNET, (443,))),
    )


def _topology(fabrics: Sequence[str]) -> tuple[str, ...]:
    """Kueue's topology takes nodes that have all labels: those of a fabric where all nodes have it."""
    if fabrics and all(fabric in _PLUGINS for fabric in fabrics):
        return (*BLOCKS, names.HOSTNAME_LABEL)
    if fabrics == ["ici"]:
        return (names.ZONE_LABEL, NODE_POOL, names.HOSTNAME_LABEL)
    return (names.ZONE_LABEL, names.HOSTNAME_LABEL)


def _disks(keys: Keys) -> StorageClass:
    parameters = {"type": "pd-balanced", "disk-encryption-kms-key": keys.data}
    return StorageClass("disk", "pd.csi.storage.gke.io", parameters)


def _bucket_volumes(bucket: str) -> VolumeSource:
    """Volumes of the bucket by FUSE, each a folder of it; pods that use one need an annotation."""

    def source(path: str) -> dict[str, Any]:
        csi = {"driver": "gcsfuse.csi.storage.gke.io", "volumeHandle": bucket}
        return {"csi": csi, "mountOptions": [f"only-dir={path}"] if path else []}

    return source
