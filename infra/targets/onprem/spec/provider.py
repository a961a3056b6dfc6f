"""The on-premises target: a Kubernetes cluster that exists, on machines of one's own."""

from __future__ import annotations

import re
from ipaddress import IPv4Address
from typing import Annotated, Any, ClassVar, Literal

from pydantic import BeforeValidator, Field

from infra.spec.amd import AmdSpec, Image
from infra.spec.base import Boolean, Cidr, Name, NonNegative, Positive, Spec, matching, wrong
from infra.spec.provider import ContextCluster, ManagedProviderSpec
from infra.spec.storage import FilesystemSpec

Installed = Literal["install", "present"]
"""`install` it; or it is `present` already, put there by others, who configure it too."""


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
Address = Annotated[IPv4Address, BeforeValidator(_address)]
DeviceId = Annotated[str, BeforeValidator(_device_id)]
Interface = Annotated[str, Field(pattern=r"^[A-Za-z0-9_.-]{1,15}$")]


class LeafSpec(Spec):
    """The machines behind one leaf switch."""

    name: Name = Field(description="name of the leaf")
    spine: Name = Field(description="name of the spine, or rail group, above it")
    nodes: dict[Name, tuple[NodeName, ...]] = Field(
        min_length=1, description="pool to the names of its nodes that stand here"
    )


class IpPoolSpec(Spec):
    """Addresses for the pods' interfaces in the fabric (NVIDIA's IPAM)."""

    name: Name = Field(description="name of the pool of addresses")
    subnet: Cidr = Field(description="addresses of the pool")
    per_node: Positive = Field(default=16, description="addresses of each node")
    gateway: Address | None = Field(default=None, description="gateway of the subnet; default: none")


class IpoibSpec(Spec):
    """A secondary network with addresses over InfiniBand, for storage and older tools."""

    interface: Interface = Field(description="IPoIB interface of the machines, such as ibs3f0")
    pool: Name = Field(description="pool of addresses")


class InfinibandSpec(Spec):
    """The RDMA NICs of the machines, whatever they speak; how pods reach them is the pools' `fabric`."""

    link: Literal["infiniband", "ethernet"] = Field(
        default="infiniband", description="what the NICs speak; on Ethernet they are RoCE"
    )
    device_ids: tuple[DeviceId, ...] = Field(min_length=1, description="PCI device IDs of the NICs")
    driver: Installed = Field(default="install", description="NVIDIA's DOCA driver for the NICs")
    pool: Name | None = Field(
        default=None, description="addresses of a pod's interfaces on its NICs; default: none"
    )
    interfaces: tuple[Interface, ...] = Field(
        default=(), description="interfaces of the 8 Ethernet NICs that pods share (roce-shared)"
    )
    mtu: Annotated[Positive, Field(ge=1280, le=9978)] | None = Field(
        default=None, description="roce-sriov: MTU of virtual functions; default: the driver's, mostly 1500"
    )
    traffic_class: Annotated[NonNegative, Field(le=255)] | None = Field(
        default=None, description="RoCE: NCCL_IB_TC, which switches know lossless traffic by; default: 0"
    )
    gid_index: Annotated[NonNegative, Field(le=255)] | None = Field(
        default=None, description="RoCE: NCCL_IB_GID_INDEX; default: NCCL finds that of RoCE v2"
    )
    ip_pools: tuple[IpPoolSpec, ...] = Field(default=(), description="pools of addresses")
    ipoib: IpoibSpec | None = Field(default=None, description="a secondary network over IPoIB")


class NfsSpec(FilesystemSpec):
    """An NFS server or appliance, mounted through the NFS CSI driver."""

    NO_SNAPSHOTS: ClassVar[str] = (
        "an export's snapshots are its server's: set a schedule there (those of the NFS CSI driver are"
        " archives of a whole folder, each written when it is asked for)"
    )

    kind: Literal["nfs"]
    server: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9.-]*$")] = Field(
        description="name or address of the NFS server"
    )
    share: Annotated[str, Field(pattern=r"^/[^#\s]*[^/#\s]$")] = Field(
        description="path that the server exports, such as /training"
    )
    connections: Annotated[Positive, Field(le=16)] = Field(
        default=8, description="TCP connections of a node to the server (nconnect)"
    )
    driver: Installed = Field(default="install", description="the NFS CSI driver")


class S3Spec(Spec):
    """An S3 store that exists already."""

    endpoint: Annotated[str, Field(pattern=r"^https?://[^/\s]+$")] = Field(description="URL without a path")
    secret: Name = Field(
        default="object-store",
        description="Secret in each team's namespace, put there by others: no key goes through this stack",
    )


class OnpremSpec(ManagedProviderSpec):
    """A cluster that remains when the stack is destroyed; what the stack adds to it goes."""

    kind: Literal["onprem"]
    cluster: ContextCluster = Field(description="{context: NAME}, a context of the user's kubeconfig")
    leaves: tuple[LeafSpec, ...] | None = Field(
        default=None,
        min_length=1,
        description="where each node is: the stack labels it; default: the nodes have their labels",
    )
    topology: tuple[LabelKey, ...] | None = Field(
        default=None,
        min_length=1,
        max_length=15,
        description="node labels of the network's levels, the widest first, where nodes have them",
    )
    country: Annotated[str, Field(pattern=r"^[A-Z]{2}$")] | None = Field(
        default=None, description="where the machines stand (ISO 3166: DE), for data that may not be anywhere"
    )
    training_image: Image = Field(description="image that jobs run in, by digest")
    amd: AmdSpec | None = Field(default=None, description="images for pools with AMD GPUs")
    gpu_operator: Installed = Field(default="install", description="NVIDIA's GPU Operator")
    gpu_driver: Installed = Field(default="install", description="NVIDIA's driver on the machines")
    dra_driver: Installed = Field(
        default="install", description="NVIDIA's DRA driver, for racks whose machines NVLink joins"
    )
    node_os: Annotated[str, Field(pattern=r"^[a-z]+\d+(\.\d+)?$")] = Field(
        default="ubuntu24.04", description="system of the machines, as tags of driver images name it"
    )
    network_operator: Installed = Field(default="install", description="NVIDIA's Network Operator")
    memory_lock: Installed = Field(
        default="install",
        description="memory that RDMA may lock; `present`: LimitMEMLOCK=infinity in the unit of containerd or"
        " CRI-O on every machine",
    )
    amd_operator: Installed = Field(default="install", description="AMD's GPU Operator")
    infiniband: InfinibandSpec | None = Field(default=None, description="the RDMA NICs")
    filesystem: NfsSpec = Field(description="the shared filesystem, under checkpoints")
    object_store: S3Spec = Field(description="where the object store is")
    service_monitors: Boolean = Field(
        default=False, description="GPU metrics for the Prometheus operator, where the cluster has it"
    )
