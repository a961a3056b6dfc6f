"""Settings of NVIDIA's Network Operator: link type, IP pools, drivers, and how pods get NICs."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from catalog import Architecture


@dataclass(frozen=True)
class AddressPool:
    """Addresses of pods in a fabric: each node has a block of them."""

    name: str
    subnet: str
    per_node: int
    gateway: str | None


NicAccess = Literal["shared", "sriov", "hostdev", "functions"]
"""Access of pods to NICs: all NICs of a node shared, a virtual function of each, or the NICs themselves.
With `functions` the NICs of a virtual machine are virtual functions already, and pods get them directly."""


Link = Literal["infiniband", "ethernet"]
"""Link type of the NICs; RDMA over Ethernet is RoCE."""


@dataclass(frozen=True)
class NetworkOperatorSettings:
    """NVIDIA's NICs in the nodes, as the Network Operator is to set them up."""

    access: NicAccess
    link: Link = field(default="infiniband", kw_only=True)
    interfaces: tuple[str, ...] = field(default=(), kw_only=True)
    """Names of the nodes' Ethernet interfaces; each pod that shares NICs gets a macvlan interface on each."""
    mtu: int | None = field(default=None, kw_only=True)
    """MTU of virtual functions on Ethernet."""
    device_ids: tuple[str, ...]
    """PCI device IDs of the NICs."""
    installs_driver: bool
    pools: tuple[AddressPool, ...] = ()
    pool: str | None = None
    """Address pool of the pods' NICs; None: no addresses; RDMA over InfiniBand needs none."""
    ipoib: tuple[str, str] | None = None
    """Interface of the nodes and address pool of a secondary IPoIB network."""
    architectures: tuple[Architecture, ...] = ("amd64",)
    """Architectures of the nodes' processors."""
    waits_for_nics: bool = True
    """Whether a node with NICs exists during `up`; False where all such nodes may join later."""
    driver_environment: Mapping[str, str] = field(default_factory=dict)
    """Environment variables of the container that builds and loads the NIC driver."""
