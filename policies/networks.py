"""Decides whether networks amount to the public internet, alone or together."""

from collections.abc import Iterable, Iterator
from functools import cache
from ipaddress import (
    IPv4Network,
    IPv6Network,
    collapse_addresses,
    ip_address,
    ip_network,
    summarize_address_range,
)

PUBLIC_SOURCES = ("*", "internet", "any")
BROADEST_PREFIX = {4: 8, 6: 16}
"""Shortest permitted prefix by IP version. Two halves of the internet are the internet too: a wider
network has no single owner."""
ServedNetwork = IPv4Network | IPv6Network


@cache
def is_public(source: str) -> bool:
    """Whether a network, or a word for all, is the public internet; a private network of any size is not."""
    if source.lower() in PUBLIC_SOURCES:
        return True
    network = _network(source)
    return network is not None and _is_wide(network)


def is_narrow(source: str) -> bool:
    """Whether a text is a network, and not the public internet."""
    network = _network(source)
    return network is not None and not _is_wide(network)


def public_together(sources: Iterable[str]) -> Iterator[str]:
    """The sources that are public by themselves; else, if they cover a public network together, the first."""
    listed = list(sources)
    if alone := [source for source in listed if is_public(source)]:
        yield from alone
        return
    networks = [network for source in listed if (network := _network(source))]
    for version in (4, 6) if len(networks) > 1 else ():
        joined = collapse_addresses(each for each in networks if each.version == version)  # type: ignore[type-var]
        for network in joined:
            if _is_wide(network):
                yield f"{listed[0]} and others, together {network}"


def is_public_range(start: str, end: str) -> bool:
    """Whether the addresses from one to another are a public network."""
    if start == end == "0.0.0.0":  # noqa: S104 - Azure's word for all of its customers
        return True
    try:
        return any(_is_wide(each) for each in summarize_address_range(ip_address(start), ip_address(end)))
    except (ValueError, TypeError):
        return False


def _is_wide(network: ServedNetwork) -> bool:
    return network.prefixlen < BROADEST_PREFIX[network.version] and not network.is_private


@cache
def _network(source: str) -> ServedNetwork | None:
    if not source[:1].isalnum() and source[:1] != ":":
        return None
    try:
        return ip_network(source, strict=False)
    except ValueError:
        return None  # a service tag or the name of a group
