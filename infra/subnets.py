"""How a network is cut into subnets, so that a zone added later moves none of the others."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network

SLOTS = 8
MAX_ZONES = 6
"""Zones that have a slot; one further slot holds all public subnets, and one stays free."""


def private_subnets(network: IPv4Network, zones: Sequence[str]) -> dict[str, IPv4Network]:
    """Give each zone, by its place in the list, an eighth of the network for nodes and pods."""
    return dict(zip(zones, _slots(network)[:MAX_ZONES], strict=False))


def public_subnets(network: IPv4Network, zones: Sequence[str]) -> dict[str, IPv4Network]:
    """Give each zone an eighth of the network's last eighth: NAT gateways need few addresses."""
    return dict(zip(zones, _slots(_slots(network)[-1])[:MAX_ZONES], strict=False))


def _slots(network: IPv4Network) -> list[IPv4Network]:
    return list(network.subnets(new_prefix=network.prefixlen + SLOTS.bit_length() - 1))
