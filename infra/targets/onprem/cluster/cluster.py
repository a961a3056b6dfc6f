"""The on-premises target's component: labels an existing cluster's nodes, and derives the settings of the
vendors' operators, the NFS volumes and the object store. It installs no operator itself.
"""

import base64
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import ClassVar, cast
from urllib.parse import urlsplit

import pulumi
import yaml

import catalog
from infra.common.artifacts import Artifacts
from infra.common.kubernetes_objects import FORCE, ObjectPatch, claim_and_connect
from infra.operator_settings.amd_operator import AmdOperatorSettings
from infra.operator_settings.dra_driver import DraDriverSettings
from infra.operator_settings.gpu_operator import GpuOperatorSettings
from infra.operator_settings.network_operator import AddressPool, NetworkOperatorSettings, NicAccess
from infra.operator_settings.node_software import NodeSoftwareSettings, mirror_of
from infra.stackfile import Stack
from infra.stackfile.target import TargetKind
from infra.targets.base import (
    INTERNET,
    NVIDIA_RESOURCE,
    OTHERS_DNS,
    PRIVATE,
    Cluster,
    ClusterOutputs,
    ClusterSettings,
    Destination,
    ObjectStoreOutputs,
    PoolSettings,
    memory_lock,
    render_group,
)
from infra.targets.kubeconfig import kubeconfig_without_credentials
from infra.targets.onprem.cluster.filesystem import nfs_volumes, shared_class
from infra.targets.onprem.cluster.nodes import node_labels, pool_settings, topology
from infra.targets.onprem.stackfile.target import OnpremSpec

_ACCESS: Mapping[str, NicAccess] = {
    "ib-shared": "shared",
    "ib-shared-rocm": "shared",
    "ib-shared-nvl72": "shared",
    "ib-sriov": "sriov",
    "ib-hostdev": "hostdev",
    "roce-shared": "shared",
    "roce-shared-rocm": "shared",
    "roce-sriov": "sriov",
    "roce-hostdev": "hostdev",
}
"""Fabric class → access of pods to NICs; the checks allow one access per stack."""


class OnpremCluster(Cluster):
    """Kubernetes that remains when the stack is destroyed; the stack labels its nodes and installs
    operators.
    """

    KIND: ClassVar[TargetKind] = "onprem"

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        super().__init__(stack, artifacts, opts)
        spec = cast(OnpremSpec, stack.target)
        self.pools = {pool.name: pool_settings(pool, spec) for pool in stack.pools}
        self.settings = _settings(stack, spec, self.pools)
        kubeconfig = kubeconfig_without_credentials(spec.cluster.context)
        self.access = claim_and_connect(
            stack.name, pulumi.Output.secret(kubeconfig), None, self, protect=spec.deletion_protection
        )
        for pool in self.pools.values():
            for node, labels in node_labels(pool, spec.leaves or ()).items():
                about = {"name": node, "labels": dict(labels), "annotations": FORCE}
                ObjectPatch("Node", about, self.access.options(self))
        self.outputs = _outputs(stack, spec, kubeconfig)
        self.register_outputs({"endpoint": self.outputs.endpoint})


def _outputs(stack: Stack, spec: OnpremSpec, kubeconfig: str) -> ClusterOutputs:
    cluster = yaml.safe_load(kubeconfig)["clusters"][0]["cluster"]
    ca_certificate = base64.b64decode(cluster.get("certificate-authority-data", "")).decode()
    store, second = spec.object_store, spec.second_filesystem
    return ClusterOutputs(
        endpoint=pulumi.Output.from_input(cluster["server"]),
        ca_certificate=pulumi.Output.from_input(ca_certificate),
        kubeconfig=pulumi.Output.secret(kubeconfig),
        volume_source=nfs_volumes(spec.filesystem),
        second_source=nfs_volumes(second) if second else None,
        object_store=ObjectStoreOutputs(store.endpoint, stack.storage.object_store.bucket, store.secret),
        storage_classes=(shared_class(spec.filesystem),),
    )


def _settings(stack: Stack, spec: OnpremSpec, pools: Mapping[str, PoolSettings]) -> ClusterSettings:
    return ClusterSettings(
        name=stack.name,
        kubernetes_version=spec.rendered_version,
        topology_labels=topology(spec),
        data_dir="",
        training_image=spec.training_image,
        training_images={catalog.accelerator_resource("amd"): spec.amd.training_image} if spec.amd else {},
        device_groups=render_group(spec.amd),
        serves_object_store=False,
        device_plugins=memory_lock(pools.values()) if spec.memory_lock == "install" else (),
        environment=_roce(spec),
        software=_software(stack, spec, pools),
        dns=OTHERS_DNS,
        destinations=_store(spec.object_store.endpoint),
    )


def _store(endpoint: str) -> tuple[Destination, ...]:
    """Return the store's destinations: its address, or all networks if the endpoint has a name."""
    url = urlsplit(endpoint)
    port = url.port or {"http": 80, "https": 443}[url.scheme]
    try:
        networks = [f"{IPv4Address(url.hostname or '')}/32"]
    except ValueError:
        networks = [INTERNET, *PRIVATE]
    return tuple(Destination(each, (port,)) for each in networks)


def _roce(spec: OnpremSpec) -> dict[str, str]:
    """Return NCCL's settings for this site's Ethernet, which no fabric class can contain."""
    nics = spec.infiniband
    settings = {"NCCL_IB_TC": nics.traffic_class, "NCCL_IB_GID_INDEX": nics.gid_index} if nics else {}
    return {name: str(value) for name, value in settings.items() if value is not None}


def _software(stack: Stack, spec: OnpremSpec, pools: Mapping[str, PoolSettings]) -> NodeSoftwareSettings:
    resources = {pool.accelerator_resource for pool in pools.values() if pool.accelerators_per_node}
    installs_gpus = spec.gpu_operator == "install" and NVIDIA_RESOURCE in resources
    gpus = GpuOperatorSettings(spec.gpu_driver == "install", spec.service_monitors, spec.container_runtime)
    in_racks = any(catalog.fabric(pool.fabric_class).nvlink_domain for pool in pools.values())
    return NodeSoftwareSettings(
        network_operator=_network_operator(stack, spec),
        gpu_operator=gpus if installs_gpus else None,
        dra_driver=_dra_driver(spec) if in_racks and spec.dra_driver == "install" else None,
        amd_operator=_amd(spec) if spec.amd_operator == "install" else None,
        installs_nfs_driver=spec.filesystem.driver == "install",
        mirror=mirror_of(spec.mirror),
        node_os=spec.node_os,
        installs_nfd=spec.node_feature_discovery == "install",
    )


def _dra_driver(spec: OnpremSpec) -> DraDriverSettings:
    return DraDriverSettings("/run/nvidia/driver" if spec.gpu_driver == "install" else "/")


def _network_operator(stack: Stack, spec: OnpremSpec) -> NetworkOperatorSettings | None:
    joined = [pool for pool in stack.pools if pool.fabric in _ACCESS]
    nics = spec.infiniband
    if nics is None or not joined:
        return None
    return NetworkOperatorSettings(
        access=_ACCESS[joined[0].fabric],
        link=nics.link,
        interfaces=nics.interfaces,
        mtu=nics.mtu,
        device_ids=nics.device_ids,
        installs_driver=nics.driver == "install",
        pools=tuple(
            AddressPool(
                each.name, str(each.subnet), each.per_node, str(each.gateway) if each.gateway else None
            )
            for each in nics.ip_pools
        ),
        pool=nics.pool,
        ipoib=(nics.ipoib.interface, nics.ipoib.pool) if nics.ipoib else None,
        # Nodes are x86 where the catalogue has no architecture for their accelerator.
        architectures=tuple(sorted({pool.architecture or "amd64" for pool in joined})),
    )


def _amd(spec: OnpremSpec) -> AmdOperatorSettings | None:
    amd = spec.amd
    if amd is None:
        return None
    return AmdOperatorSettings(
        amd.device_plugin, amd.node_labeller, amd.metrics_exporter, amd.utils, spec.service_monitors
    )
