"""Base class of a target's cluster component, and its settings and outputs, which the platform reads."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pulumi

import catalog
from infra.common import names
from infra.common.artifacts import Artifacts
from infra.common.kubernetes_objects import Access
from infra.operator_settings.autoscaler import AutoscalerSettings
from infra.operator_settings.node_software import NodeSoftwareSettings
from infra.stackfile import Stack
from infra.stackfile.amd import AmdSpec
from infra.stackfile.fabric import FabricClass
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.target import TargetKind

TAINT_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
"""Kubernetes' name of a taint effect → the name in EKS's and GKE's APIs."""
DevicePlugin = Literal["nvidia", "efa", "gib", "gib-arm64", "tcpxo", "device-injector", "memory-lock"]
"""DaemonSets for devices. `gib…`: NCCL over Google Cloud's RoCE; `tcpxo` and `device-injector`: NCCL over
GPUDirect-TCPXO; `memory-lock`: raises the limit on locked memory for RDMA."""
CapacityMode = Literal["fixed", "autoscaled", "queued"]
"""Way in which a pool gets nodes. `fixed`: a constant number. `autoscaled`: one by one, as pods wait.
`queued`: Kueue requests all nodes of a job at once, by a ProvisioningRequest."""
CAPACITY_MODES: Mapping[str | None, CapacityMode] = {
    None: "fixed",
    "node-by-node": "autoscaled",
    "all-at-once": "queued",
}
"""Value of `provisioning` in the stack file → capacity mode."""


NVIDIA_RESOURCE = catalog.accelerator_resource("nvidia")
INTERNET = "0.0.0.0/0"
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""Private networks (RFC 1918 and RFC 6598), with pods, nodes and the API server."""
LINK_LOCAL = "169.254.0.0/16"
"""Link-local network, with the node's metadata service."""
NODE_LOCAL_DNS = "169.254.20.10/32"
"""Address of NodeLocal DNSCache on every node (Kubernetes: Using NodeLocal DNSCache in clusters)."""
OTHERS_DNS = (NODE_LOCAL_DNS, *PRIVATE)
"""Networks that may answer DNS in an existing cluster: nodes or outside servers, which a plan cannot look
up."""


@dataclass(frozen=True)
class Destination:
    """A TCP endpoint outside the cluster's pods that pods of all teams may connect to."""

    cidr: str
    """Network of the destination; INTERNET excludes all private networks."""
    ports: tuple[int, ...]


@dataclass(frozen=True)
class ClusterSettings:
    """Properties of the cluster that are known at preview and determine which resources exist."""

    name: str
    kubernetes_version: str
    topology_labels: tuple[str, ...]
    """Node labels from the widest level of the network to the host."""
    required_topology: str = field(default="", kw_only=True)
    """Topology level that must hold all pods of a job, such as a TPU slice; empty: no level is required."""
    rack_label: str = field(default=names.CLIQUE_LABEL, kw_only=True)
    """Label of the NVLink rack; empty where a topology level is the rack already."""
    provisioning_class: str = field(default="", kw_only=True)
    """Class of ProvisioningRequests for which the cloud's autoscaler creates all nodes of a job at once."""
    data_dir: str
    """Root folder of the shared volumes on every node; empty where these are on a shared filesystem."""
    training_image: str
    """Reference of the image that jobs run in."""
    training_images: Mapping[str, str] = field(default_factory=dict)
    """Resource of accelerators → image of their jobs, where it differs from `training_image` (ROCm)."""
    device_groups: Mapping[str, int] = field(default_factory=dict)
    """Resource of accelerators → number of the group that may open their devices, where not all users may."""
    training_env: str | None = None
    """Folder of every node with the packages of jobs; None where the image holds them."""
    serves_object_store: bool = True
    """Whether the platform serves the object store itself; False where the cloud has one."""
    device_plugins: tuple[DevicePlugin, ...] = ()
    """Device plugins that the platform must install, since the cloud does not."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of every job that configure access to the cloud."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every job's pods by which the cloud assigns an identity."""
    image_pull_policy: Literal["Never", "IfNotPresent"] = "IfNotPresent"
    """Image pull policy; `Never` where images are imported onto the nodes beforehand."""
    software: NodeSoftwareSettings = field(default_factory=NodeSoftwareSettings)
    autoscaler: AutoscalerSettings | None = None
    dns: tuple[str, ...] = (NODE_LOCAL_DNS,)
    """Networks of DNS servers that are no pods in kube-system."""
    destinations: tuple[Destination, ...] = ()
    """Endpoints that all pods may reach: the object store, and the cloud's identity service."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group of users in the stack file → its name in the cluster, where the target changes the name."""


@dataclass(frozen=True)
class PoolSettings:
    """Properties of a pool that are known at preview."""

    name: str
    num_nodes: int
    capacity: str
    capacity_mode: CapacityMode
    fabric_class: FabricClass
    accelerators_per_node: int
    accelerator_resource: str
    """Extended resource by which pods request accelerators."""
    preemption_notice_seconds: int | None
    """Seconds from the preemption notice to the node's end; None for nodes that are not preempted."""
    node_names: tuple[str, ...]
    """Names of the nodes; empty where the cloud chooses them."""
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    """Taints, as mappings of key, value and effect."""
    cloud_labels: Mapping[str, str] = field(default_factory=dict)
    """Node labels that the cloud sets and requires in a pod's selector."""
    cloud_taints: tuple[str, ...] = ()
    """Keys of the taints that the cloud sets on the nodes."""

    @property
    def selector(self) -> dict[str, str]:
        """Node selector that finds this pool's nodes."""
        return {names.POOL_LABEL: self.name, **self.cloud_labels}

    @property
    def tolerations(self) -> list[dict[str, str]]:
        """Tolerations that let a pod onto this pool's nodes."""
        keys = [(taint["key"], taint["effect"]) for taint in self.taints]
        keys += [(key, "NoSchedule") for key in self.cloud_taints]
        return [{"key": key, "operator": "Exists", "effect": effect} for key, effect in keys]


@dataclass(frozen=True)
class StorageClass:
    """A class from which volumes are made on demand."""

    name: str
    provisioner: str
    parameters: Mapping[str, pulumi.Input[str]]


@dataclass(frozen=True)
class ObjectStoreOutputs:
    """An object store that the platform does not serve."""

    endpoint: str
    bucket: str
    secret: str = ""
    """Secret with access keys in each team's namespace; empty where jobs use their cloud identity."""
    outside: str = ""
    """Endpoint from outside the cluster, where it differs."""


VolumeSource = Callable[[str], Mapping[str, Any]]
"""Function from a path in the shared filesystem (empty for its root) to a PersistentVolume's source."""


@dataclass(frozen=True)
class ClusterOutputs:
    """Properties of the cluster that are known once it exists."""

    endpoint: pulumi.Output[str]
    ca_certificate: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    """Kubeconfig of the cluster; secret."""
    volume_source: VolumeSource | None = None
    """Volume source of folders in the one shared filesystem; None where each volume is a separate
    filesystem."""
    second_source: VolumeSource | None = None
    """Likewise, of a second filesystem that data is copied to or from."""
    shared_class: str = ""
    """Storage class of the teams' shared volumes, where there is no `volume_source`."""
    object_store_keys: tuple[pulumi.Output[str], pulumi.Output[str]] | None = None
    """Access key and secret key of the object store in the cluster; both secret."""
    object_store: ObjectStoreOutputs | None = None
    """The cloud's object store, where the platform serves none."""
    storage_classes: tuple[StorageClass, ...] = ()
    bucket_source: VolumeSource | None = None
    """Volume source of a folder in the object store (ends with `/`); None where folders cannot be mounted."""
    service_accounts: Mapping[str, Mapping[str, pulumi.Input[str]]] = field(default_factory=dict)
    """Namespace → annotations of its service account that give its pods a cloud identity."""


class Cluster(pulumi.ComponentResource):
    """Base class of a target's component: control plane, Kubernetes provider, then pools and storage."""

    KIND: ClassVar[TargetKind]
    settings: ClusterSettings
    pools: Mapping[str, PoolSettings]
    outputs: ClusterOutputs
    access: Access

    def __init__(
        self, stack: Stack, artifacts: Artifacts, opts: pulumi.ResourceOptions | None = None
    ) -> None:
        # A subclass declares its parts after this call, and ends with `register_outputs`.
        # The spec is given as inputs so that policies can evaluate the intent.
        spec: dict[str, Any] = stack.model_dump(mode="json", by_alias=True)
        super().__init__(f"trainyard:infra:{type(self).__name__}", stack.name, {"stack": spec}, opts)


def memory_lock(pools: Iterable[PoolSettings]) -> tuple[DevicePlugin, ...]:
    """Return the plugin that raises the limit on locked memory, if a fabric of the pools needs it."""
    pins = any(catalog.fabric(pool.fabric_class).pins_memory for pool in pools)
    return ("memory-lock",) if pins else ()


def render_group(amd: AmdSpec | None) -> dict[str, int]:
    """Return the group of the devices of AMD's GPUs, if the stack names it."""
    return {catalog.accelerator_resource("amd"): amd.render_gid} if amd and amd.render_gid else {}


def pool_labels(pool: NodePoolSpec) -> dict[str, str]:
    """Return the labels of every node of a pool, on whatever target."""
    accelerator = {names.ACCELERATOR_LABEL: pool.accelerator.model} if pool.accelerator else {}
    return {names.POOL_LABEL: pool.name, names.CAPACITY_LABEL: pool.label, **accelerator}


def pool_taints(
    pool: NodePoolSpec, accelerator_resource: str = NVIDIA_RESOURCE
) -> tuple[dict[str, str], ...]:
    """Return the taints that keep off pods without accelerators, and those that cannot be interrupted."""
    taints = []
    if pool.accelerator:
        taints.append({"key": accelerator_resource, "value": "present", "effect": "NoSchedule"})
    if pool.is_spot:
        taints.append({"key": names.SPOT_TAINT, "value": "true", "effect": "NoSchedule"})
    return tuple(taints)


def make_pool_settings(
    pool: NodePoolSpec,
    *,
    labels: Mapping[str, str],
    taints: tuple[Mapping[str, str], ...] = (),
    preemption_notice_seconds: int | None = None,
    accelerator_resource: str = NVIDIA_RESOURCE,
    node_names: tuple[str, ...] = (),
    cloud_taints: tuple[str, ...] = (),
    capacity_mode: CapacityMode = "fixed",
) -> PoolSettings:
    """Return the platform's settings of a pool with at most as many nodes as the stack declares."""
    return PoolSettings(
        name=pool.name,
        num_nodes=pool.num_nodes,
        capacity=pool.label,
        capacity_mode=capacity_mode,
        fabric_class=pool.fabric,
        accelerators_per_node=pool.accelerator.count if pool.accelerator else 0,
        accelerator_resource=accelerator_resource,
        preemption_notice_seconds=preemption_notice_seconds,
        node_names=node_names,
        labels=labels,
        taints=taints,
        cloud_taints=cloud_taints,
    )
