"""The contract of a target's cluster component: its settings for the platform, and its outputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import pulumi

import catalog
from infra import names
from infra.artifacts import Artifacts
from infra.kubernetes_objects import Access
from infra.operator_settings.autoscaler import AutoscalerSettings
from infra.operator_settings.node_software import NodeSoftwareSettings
from infra.spec import Stack
from infra.spec.fabric import FabricClass
from infra.spec.node_pool import Capacity, NodePoolSpec
from infra.spec.provider import ProviderKind

TAINT_EFFECTS = {
    "NoSchedule": "NO_SCHEDULE",
    "NoExecute": "NO_EXECUTE",
    "PreferNoSchedule": "PREFER_NO_SCHEDULE",
}
"""Kubernetes' words → those of EKS's and GKE's APIs."""
DevicePlugin = Literal["nvidia", "efa", "gib", "gib-arm64", "tcpxo", "device-injector", "memory-lock"]
"""`gib…`: NCCL over Google Cloud's RoCE; `tcpxo` and `device-injector`: NCCL over GPUDirect-TCPXO;
`memory-lock`: a limit on locked memory that RDMA can work with, where nodes do not come with one."""
CapacityMode = Literal["fixed", "autoscaled", "queued"]
"""`fixed`: the pool has the nodes that it has. `autoscaled`: nodes come one by one, as pods wait for them.
`queued`: Kueue asks for all nodes of a job at once, by a ProvisioningRequest."""
CAPACITY_MODES: Mapping[str | None, CapacityMode] = {
    None: "fixed",
    "flex-start": "autoscaled",
    "queued": "queued",
}
"""Value of `provisioning` in the stack file → its provisioning mode."""


INTERNET = "0.0.0.0/0"
PRIVATE = ("10.0.0.0/8", "100.64.0.0/10", "172.16.0.0/12", "192.168.0.0/16")
"""RFC 1918 and RFC 6598: pods, nodes, the API server, and what else is inside."""
LINK_LOCAL = "169.254.0.0/16"
"""The metadata service of a node among others."""
NODE_LOCAL_DNS = "169.254.20.10/32"
"""Where NodeLocal DNSCache listens on every node (Kubernetes: Using NodeLocal DNSCache in clusters)."""
OTHERS_DNS = (NODE_LOCAL_DNS, *PRIVATE)
"""In a cluster of others, which may answer DNS from nodes or outside of it: a plan cannot ask it where."""


@dataclass(frozen=True)
class Destination:
    """What pods of all teams may connect to by TCP, outside of the cluster's pods."""

    cidr: str
    """INTERNET leaves out all private networks."""
    ports: tuple[int, ...]


@dataclass(frozen=True)
class ClusterSettings:
    """What is known of the cluster at preview: it decides which resources exist."""

    name: str
    kubernetes_version: str
    topology_labels: tuple[str, ...]
    """Node labels from the widest level of the network to the host."""
    required_topology: str = field(default="", kw_only=True)
    """Level of the topology that must hold all pods of a job, such as a slice of TPUs; empty: none must."""
    rack_label: str = field(default=names.CLIQUE_LABEL, kw_only=True)
    """Label of the rack that NVLink joins; empty where a level of the topology is the rack already."""
    provisioning_class: str = field(default="", kw_only=True)
    """Class of ProvisioningRequests by which the cloud's autoscaler gives all nodes of a job at once."""
    data_dir: str
    """Root of the shared volumes: a folder of every node, or of the shared filesystem (then empty)."""
    training_image: str
    """Reference of the image that jobs run in."""
    training_images: Mapping[str, str] = field(default_factory=dict)
    """Resource of accelerators → image of their jobs, where it is another one (ROCm)."""
    training_env: str | None = None
    """Folder of every node with the packages of jobs; None where the image holds them."""
    serves_object_store: bool = True
    """Whether the platform serves the object store itself; False where the cloud has one."""
    device_plugins: tuple[DevicePlugin, ...] = ()
    """What must be installed on nodes for pods to use their devices, where the cloud does not do it."""
    environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of every job, by which it finds what the cloud has."""
    pod_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels of every job's pods, by which the cloud gives them their identity."""
    image_pull_policy: Literal["Never", "IfNotPresent"] = "IfNotPresent"
    """`Never` where images are imported onto the nodes beforehand."""
    software: NodeSoftwareSettings = field(default_factory=NodeSoftwareSettings)
    autoscaler: AutoscalerSettings | None = None
    dns: tuple[str, ...] = (NODE_LOCAL_DNS,)
    """Networks that answer DNS and are no pods of kube-system."""
    destinations: tuple[Destination, ...] = ()
    """The target's object store, and the endpoint that gives pods their identity in the cloud."""
    groups: Mapping[str, str] = field(default_factory=dict)
    """Group of users in the stack file → its name in the cluster, where the target gives it another one."""


@dataclass(frozen=True)
class PoolSettings:
    """What is known of a pool at preview."""

    name: str
    num_nodes: int
    capacity: Capacity
    capacity_mode: CapacityMode
    fabric_class: FabricClass
    accelerators_per_node: int
    accelerator_resource: str
    """Resource name that pods ask for."""
    preemption_notice_seconds: int | None
    """Seconds from the preemption notice to the node's end; None for nodes that are not preempted."""
    node_names: tuple[str, ...]
    """Empty where the cloud names the nodes."""
    labels: Mapping[str, str]
    taints: tuple[Mapping[str, str], ...]
    """Mappings of key, value and effect."""
    cloud_labels: Mapping[str, str] = field(default_factory=dict)
    """Labels that the cloud itself puts on the nodes, and wants to see in a pod's selector."""
    cloud_taints: tuple[str, ...] = ()
    """Keys of the taints that the cloud itself puts on the nodes."""

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
    """Secret with the keys in each team's namespace; empty where jobs reach the store by their identity."""
    outside: str = ""
    """Endpoint from outside of the cluster, where that is another one."""


VolumeSource = Callable[[str], Mapping[str, Any]]
"""Path in the shared filesystem, empty for its root → the source of a PersistentVolume."""


@dataclass(frozen=True)
class ClusterOutputs:
    """What is known of the cluster once it exists."""

    endpoint: pulumi.Output[str]
    ca_certificate: pulumi.Output[str]
    kubeconfig: pulumi.Output[str]
    """Secret."""
    volume_source: VolumeSource | None = None
    """Folders of the one shared filesystem; None where each volume is a separate filesystem."""
    shared_class: str = ""
    """Class from which teams' shared volumes are made, where there is no `volume_source`."""
    object_store_keys: tuple[pulumi.Output[str], pulumi.Output[str]] | None = None
    """Access key and secret key that the served object store is to open to; both secret."""
    object_store: ObjectStoreOutputs | None = None
    """The cloud's store, where the platform serves none."""
    storage_classes: tuple[StorageClass, ...] = ()
    bucket_source: VolumeSource | None = None
    """Folder in the object store, with `/` at its end → a volume; None where it cannot be mounted."""
    service_accounts: Mapping[str, Mapping[str, pulumi.Input[str]]] = field(default_factory=dict)
    """Namespace → annotations of its service account, which give its pods an identity in the cloud."""


class Cluster(pulumi.ComponentResource):
    """A target: control plane, then the Kubernetes provider, then what needs it (pools, storage)."""

    KIND: ClassVar[ProviderKind]
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
    """What nodes need where their limit on locked memory is the distribution's, and a fabric pins memory."""
    pins = any(catalog.fabric(pool.fabric_class).pins_memory for pool in pools)
    return ("memory-lock",) if pins else ()


def pool_labels(pool: NodePoolSpec) -> dict[str, str]:
    """Return the labels of every node of a pool, on whatever target."""
    accelerator = {names.ACCELERATOR_LABEL: pool.accelerator.model} if pool.accelerator else {}
    return {names.POOL_LABEL: pool.name, names.CAPACITY_LABEL: pool.capacity, **accelerator}


def pool_taints(
    pool: NodePoolSpec, accelerator_resource: str = names.ACCELERATOR_RESOURCE
) -> tuple[dict[str, str], ...]:
    """Return the taints that keep off pods without accelerators, and those that cannot be interrupted."""
    taints = []
    if pool.accelerator:
        taints.append({"key": accelerator_resource, "value": "present", "effect": "NoSchedule"})
    if pool.is_spot:
        taints.append({"key": names.SPOT_TAINT, "value": "true", "effect": "NoSchedule"})
    return tuple(taints)


def fixed_pool(
    pool: NodePoolSpec,
    *,
    labels: Mapping[str, str],
    taints: tuple[Mapping[str, str], ...] = (),
    preemption_notice_seconds: int | None = None,
    accelerator_resource: str = names.ACCELERATOR_RESOURCE,
    node_names: tuple[str, ...] = (),
    cloud_taints: tuple[str, ...] = (),
    capacity_mode: CapacityMode = "fixed",
) -> PoolSettings:
    """Return the platform's settings of a pool with at most as many nodes as the stack declares."""
    return PoolSettings(
        name=pool.name,
        num_nodes=pool.num_nodes,
        capacity=pool.capacity,
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
