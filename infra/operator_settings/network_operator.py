"""Settings of NVIDIA's Network Operator."""

from __future__ import annotations

from dataclasses import dataclass
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
"""Pods share all cards of a machine, have a virtual function of each, or have the cards themselves.

`functions`: a virtual machine's cards are functions already, and pods have them as they are.
"""


@dataclass(frozen=True)
class NetworkOperatorSettings:
    """NVIDIA's cards in the nodes, as the Network Operator is to set them up."""

    access: NicAccess
    device_ids: tuple[str, ...]
    """PCI device IDs of the cards."""
    installs_driver: bool
    pools: tuple[AddressPool, ...] = ()
    pool: str | None = None
    """Where a pod's cards have their addresses from; None: they have none, and RDMA needs none."""
    ipoib: tuple[str, str] | None = None
    """Interface of the nodes, and pool, of a secondary network over IPoIB."""
    architectures: tuple[Architecture, ...] = ("amd64",)
    """Of the nodes' processors."""
