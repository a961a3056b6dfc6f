"""Settings of NVIDIA's Network Operator: how pods get NICs, link type, IP pools and drivers."""

from __future__ import annotations

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
"""Pods share all NICs of a node, have a virtual function of each, or have the NICs themselves.

`functions`: a virtual machine's NICs are functions already, and pods have them as they are.
"""


Link = Literal["infiniband", "ethernet"]
"""What the NICs speak: with RDMA over Ethernet it is RoCE."""


@dataclass(frozen=True)
class NetworkOperatorSettings:
    """NVIDIA's NICs in the nodes, as the Network Operator is to set them up."""

    access: NicAccess
    link: Link = field(default="infiniband", kw_only=True)
    interfaces: tuple[str, ...] = field(default=(), kw_only=True)
    """Interfaces of the nodes' Ethernet NICs, of which pods that share them have one each (macvlan)."""
    mtu: int | None = field(default=None, kw_only=True)
    """Of virtual functions on Ethernet."""
    device_ids: tuple[str, ...]
    """PCI device IDs of the NICs."""
    installs_driver: bool
    pools: tuple[AddressPool, ...] = ()
    pool: str | None = None
    """Where a pod's NICs have their addresses from; None: they have none, and RDMA needs none."""
    ipoib: tuple[str, str] | None = None
    """Interface of the nodes, and pool, of a secondary network over IPoIB."""
    architectures: tuple[Architecture, ...] = ("amd64",)
    """Of the nodes' processors."""
    waits_for_nics: bool = True
    """Whether a node with NICs exists during `up`; False where all of them may join later."""
    driver_environment: Mapping[str, str] = field(default_factory=dict)
    """Variables of the container that builds and loads the NICs' driver."""
