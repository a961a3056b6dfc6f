"""Divides a stack's network into subnets (per zone on AWS, by purpose on GKE and AKS), such that adding a
zone moves none.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

SLOTS = 8
MAX_ZONES = 6
"""Maximum number of zones, with one slot each; of the other two slots one holds all public subnets, one is
free."""


def private_subnets(network: IPv4Network, zones: Sequence[str]) -> dict[str, IPv4Network]:
    """Give each zone, in the order of the list, an eighth of the network for nodes and pods."""
    return dict(zip(zones, _slots(network)[:MAX_ZONES], strict=False))


def public_subnets(network: IPv4Network, zones: Sequence[str]) -> dict[str, IPv4Network]:
    """Give each zone an eighth of the network's last eighth: NAT gateways need few addresses."""
    return dict(zip(zones, _slots(_slots(network)[-1])[:MAX_ZONES], strict=False))


SYSTEM_NODE_POD_ADDRESSES = 256
"""Addresses of a system node: GKE reserves a /24 for its 110 pods."""
NODE_POD_ADDRESSES = 64
"""Addresses of a node in a job pool: GKE reserves a /26 for its 32 pods."""
NUM_FABRIC_SUBNETS = 8


@dataclass(frozen=True)
class GkeRanges:
    """Address ranges of a GKE cluster. None overlaps another, since a node has interfaces in several."""

    nodes: IPv4Network
    services: IPv4Network
    peered: IPv4Network
    """Range of managed services in a peered network, such as filesystems."""
    second_nic: IPv4Network
    fabric: tuple[IPv4Network, ...]
    """Subnets of the fabric, one per NIC."""
    pods: IPv4Network


def gke_ranges(network: IPv4Network) -> GkeRanges:
    """Give pods one half, and an eighth each to nodes, Services and peered services, second NIC, fabric."""
    nodes, shared, second_nic, fabric = _slots(network)[:4]
    services, peered = shared.subnets()
    per_nic = fabric.subnets(prefixlen_diff=NUM_FABRIC_SUBNETS.bit_length() - 1)
    _, pods = network.subnets()
    return GkeRanges(nodes, services, peered, second_nic, tuple(per_nic), pods)


def _slots(network: IPv4Network) -> list[IPv4Network]:
    return list(network.subnets(new_prefix=network.prefixlen + SLOTS.bit_length() - 1))


@dataclass(frozen=True)
class AksRanges:
    """Address ranges of an AKS cluster's network; pods have a separate range."""

    nodes: IPv4Network
    filesystem: IPv4Network
    endpoints: IPv4Network
    api_server: IPv4Network


def aks_ranges(network: IPv4Network) -> AksRanges:
    """Give nodes a half, a quarter to the filesystem, an eighth each to private endpoints and API server."""
    nodes, rest = network.subnets()
    filesystem, shared = rest.subnets()
    endpoints, api_server = shared.subnets()
    return AksRanges(nodes, filesystem, endpoints, api_server)
