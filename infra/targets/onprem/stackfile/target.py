"""The `target` section of an on-premises stack: an existing cluster, its RDMA NICs, NFS and S3, and which
software the stack installs or finds present.
"""

import re
from ipaddress import IPv4Address
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from infra.common.names import USABLE_KINDS
from infra.stackfile.amd import AmdSpec, Image
from infra.stackfile.base import Boolean, Cidr, Name, NonNegative, Positive, Spec, matching, wrong
from infra.stackfile.storage import FilesystemSpec
from infra.stackfile.target import ContextCluster, ManagedTargetSpec

InstallMode = Literal["install", "existing"]
"""Mode of software: `install`; or `existing` where others have installed and configured it."""


def _address(value: object) -> object:
    try:
        return IPv4Address(str(value))
    except ValueError as error:
        raise wrong("ipv4_address", "an IPv4 address such as 192.168.10.1", f"correct it: {error}") from None


def _device_id(value: Any) -> Any:  # noqa: ANN401 -- pydantic hands over whatever the user wrote
    if isinstance(value, str) and re.fullmatch(r"[0-9a-f]{4}", value):
        return value
    fix = "write it in quotes, as `lspci -nn -d 15b3:` shows it after the colon"
    raise wrong("device_id", "four hex digits in quotes, such as '1021' (ConnectX-7)", fix)


NodeName = Annotated[
    str,
    matching(
        "node_name",
        r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?",
        "the name of a Node (RFC 1123)",
        "write it as `kubectl get nodes` shows it",
    ),
]
LabelKey = Annotated[
    str,
    matching(
        "label",
        r"([a-z0-9]([-.a-z0-9]*[a-z0-9])?/)?[A-Za-z0-9]([-\w.]{0,61}[A-Za-z0-9])?",
        "the key of a node label",
        "write it as `kubectl get nodes --show-labels` shows it",
    ),
]
ExistingObjectName = Annotated[
    str,
    matching(
        "existing_object",
        rf"({'|'.join(USABLE_KINDS)}) [a-z0-9]([-.a-z0-9]*[a-z0-9])?",
        f"a kind and a name, such as `StorageClass nfs`; kinds: {', '.join(USABLE_KINDS)}",
        "write it as `trainyard doctor` shows it; other objects of the stack are its own",
    ),
]
Address = Annotated[IPv4Address, BeforeValidator(_address)]
DeviceId = Annotated[str, BeforeValidator(_device_id)]
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")]


class LeafSpec(Spec):
    """The nodes behind one leaf switch."""

    name: Name = Field(description="name of the leaf switch")
    spine: Name = Field(description="name of the spine switch or rail group above it")
    nodes: dict[Name, tuple[NodeName, ...]] = Field(
        min_length=1, description="pool to the names of its nodes behind this leaf switch"
    )


class IpPoolSpec(Spec):
    """An address pool for the pods' fabric interfaces (NVIDIA IPAM)."""

    name: Name = Field(description="name of the address pool")
    subnet: Cidr = Field(description="CIDR of the address pool")
    per_node: Positive = Field(default=16, description="number of addresses per node")
    gateway: Address | None = Field(default=None, description="gateway of the subnet; default: none")


class IpoibSpec(Spec):
    """A secondary IPoIB network, for storage and tools that need IP addresses."""

    interface: Interface = Field(description="IPoIB interface of the nodes, such as ibs3f0")
    pool: Name = Field(description="name of the address pool")


DriverVersion = Annotated[
    str,
    matching(
        "gpu_driver_version",
        r"[0-9]{3}\.[0-9]+(\.[0-9]+)?",
        "a version of NVIDIA's driver, such as 580.126.20",
        "write what `nvidia-smi` shows on the nodes, in quotes",
    ),
]


class InfinibandSpec(Spec):
    """The RDMA NICs of the nodes, InfiniBand or RoCE. A pool's `fabric` determines how pods use them."""

    link: Literal["infiniband", "ethernet"] = Field(
        default="infiniband", description="link layer of the NICs; `ethernet` is RoCE"
    )
    device_ids: tuple[DeviceId, ...] = Field(min_length=1, description="PCI device IDs of the NICs")
    driver: InstallMode = Field(
        default="install", description="NVIDIA DOCA driver for the NICs; `existing`: installed on the nodes"
    )
    pool: Name | None = Field(
        default=None, description="name of the address pool for the pods' RDMA interfaces; required for RoCE"
    )
    interfaces: tuple[Interface, ...] = Field(
        default=(), description="roce-shared: names of the 8 Ethernet interfaces that pods share"
    )
    mtu: Annotated[Positive, Field(ge=1280, le=9978)] | None = Field(
        default=None,
        description="roce-sriov: MTU of the virtual functions; default: the driver's, mostly 1500",
    )
    traffic_class: Annotated[NonNegative, Field(le=255)] | None = Field(
        default=None, description="RoCE: traffic class of lossless traffic (NCCL_IB_TC); default: 0"
    )
    gid_index: Annotated[NonNegative, Field(le=255)] | None = Field(
        default=None, description="RoCE: GID index (NCCL_IB_GID_INDEX); default: NCCL selects that of RoCE v2"
    )
    ip_pools: tuple[IpPoolSpec, ...] = Field(default=(), description="address pools (NVIDIA IPAM)")
    ipoib: IpoibSpec | None = Field(default=None, description="a secondary IPoIB network")


class NfsSpec(FilesystemSpec):
    """An NFS server or appliance, mounted through the NFS CSI driver."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = (
        "snapshots are made by the NFS server: schedule them there (the NFS CSI driver's snapshots are full"
        " archives, made on request)"
    )

    kind: Literal["nfs"]
    server: Annotated[str, Field(pattern=r"^([A-Za-z0-9][A-Za-z0-9.-]*|[0-9A-Fa-f]*:[0-9A-Fa-f:.]+)$")] = (
        Field(description="host name or IP address of the NFS server")
    )
    share: Annotated[str, Field(pattern=r"^/[^#\s]*[^/#\s]$")] = Field(
        description="exported path, such as /training"
    )
    connections: Annotated[Positive, Field(le=16)] = Field(
        default=8, description="number of TCP connections per node to the server (nconnect)"
    )
    driver: InstallMode = Field(
        default="install", description="the NFS CSI driver; `existing`: installed in the cluster"
    )


class S3Spec(Spec):
    """An existing S3-compatible object store."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/\s]+$")] = Field(
        description="URL of the endpoint, without a path"
    )
    secret: Name = Field(
        default="object-store",
        description="existing Secret with the access keys, in each team's namespace; the stack never reads"
        " the keys",
    )


class OnpremSpec(ManagedTargetSpec):
    """An existing cluster. Destroying the stack removes what the stack added and retains the cluster."""

    USUAL_SYSTEM: ClassVar = {"nodes": 3}

    kind: Literal["onprem"]
    cluster: ContextCluster = Field(description="{context: NAME}, a context of your kubeconfig")
    leaves: tuple[LeafSpec, ...] | None = Field(
        default=None,
        min_length=1,
        description="leaf switch of each node, from which the stack sets node labels; default: the nodes are"
        " labelled already",
    )
    topology: tuple[LabelKey, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=15,
        description="existing node labels of the network topology, widest level first",
    )
    existing_objects: tuple[ExistingObjectName, ...] = Field(
        default=(),
        description="objects of others that equal the stack's, as `KIND NAME`: the stack uses them, and"
        " neither changes nor deletes them",
    )
    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = Field(
        default=None, description="country of the nodes (ISO 3166, such as DE), for data residency"
    )
    training_image: Image = Field(description="image that jobs run in, by digest")
    amd: AmdSpec | None = Field(default=None, description="images for pools with AMD GPUs")
    gpu_operator: InstallMode = Field(
        default="install", description="NVIDIA GPU Operator; `existing`: installed in the cluster"
    )
    gpu_driver: InstallMode = Field(
        default="install", description="NVIDIA GPU driver; `existing`: installed on the nodes"
    )
    gpu_driver_version: DriverVersion | None = Field(
        default=None,
        description="version of the nodes' own NVIDIA driver (`gpu_driver: existing`), if jobs run in an"
        " image of training/images: compared with the image's CUDA",
    )
    dra_driver: InstallMode = Field(
        default="install",
        description="NVIDIA DRA driver for racks with multi-node NVLink; `existing`: in the cluster",
    )
    container_runtime: Literal["containerd", "k3s", "rke2"] = Field(
        default="containerd",
        description="whose containerd runs the nodes' containers, for the GPU Operator: the system's, or that"
        " of k3s or RKE2",
    )
    node_feature_discovery: InstallMode = Field(
        default="install",
        description="Node Feature Discovery, which comes with the first vendor's operator; `existing`:"
        " installed in the cluster",
    )
    node_os: Annotated[str, Field(pattern=r"^[a-z]+[0-9]+(\.[0-9]+)?$")] = Field(
        default="ubuntu24.04", description="operating system of the nodes, as in tags of driver images"
    )
    network_operator: InstallMode = Field(
        default="install", description="NVIDIA Network Operator; `existing`: installed in the cluster"
    )
    memory_lock: InstallMode = Field(
        default="install",
        description="DaemonSet that raises the locked-memory limit for RDMA; `existing`: the nodes'"
        " containerd or CRI-O unit has LimitMEMLOCK=infinity",
    )
    amd_operator: InstallMode = Field(
        default="install", description="AMD GPU Operator; `existing`: installed in the cluster"
    )
    infiniband: InfinibandSpec | None = Field(default=None, description="RDMA NICs of the nodes")
    filesystem: NfsSpec = Field(description="the shared filesystem for checkpoints and datasets")
    second_filesystem: NfsSpec | None = Field(
        default=None, description="another one, only to copy to it or from it: docs/datasets.md"
    )
    object_store: S3Spec = Field(description="the object store for checkpoints")
    deletion_protection: Boolean = Field(
        default=True,
        description="whether `down` is refused; set it to false, and bring the stack up, before"
        " `trainyard down`",
    )
    service_monitors: Boolean = Field(
        default=False,
        description="whether to create ServiceMonitors of GPU metrics for an installed Prometheus Operator",
    )
