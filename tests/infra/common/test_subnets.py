"""Subnets of a network: within it, disjoint, and stable when zones are added."""

from ipaddress import IPv4Network
from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from infra.common.subnets import MAX_ZONES, gke_ranges, private_subnets, public_subnets

ZONES = [f"us-east-2{letter}" for letter in "abcdef"]
networks = st.builds(
    lambda second, prefix: IPv4Network((f"10.{second}.0.0", prefix)), st.integers(0, 255), st.integers(16, 20)
)
zones = st.integers(1, MAX_ZONES).map(lambda count: ZONES[:count])


@given(networks, zones)
def test_subnets_lie_in_the_network_and_apart(network: IPv4Network, zones: list[str]) -> None:
    found = [*private_subnets(network, zones).values(), *public_subnets(network, zones).values()]
    assert len(found) == 2 * len(zones)
    assert all(subnet.subnet_of(network) for subnet in found)
    assert not any(one.overlaps(other) for one, other in combinations(found, 2))


@given(networks, zones)
def test_a_zone_that_is_added_moves_no_other(network: IPv4Network, zones: list[str]) -> None:
    for cut in (private_subnets, public_subnets):
        fewer, more = cut(network, zones[:-1]), cut(network, zones)
        assert fewer.items() <= more.items()


@given(networks)
def test_every_zone_has_room_for_pods(network: IPv4Network) -> None:
    assert all(subnet.num_addresses >= 512 for subnet in private_subnets(network, ZONES).values())


@given(
    st.builds(
        lambda second, prefix: IPv4Network((f"10.{second}.0.0", prefix), strict=False),
        st.integers(0, 255),
        st.integers(10, 18),
    )
)
def test_the_ranges_of_a_gke_cluster_lie_in_the_network_and_apart(network: IPv4Network) -> None:
    ranges = gke_ranges(network)
    found = [ranges.nodes, ranges.services, ranges.peered, ranges.second_nic, ranges.pods, *ranges.fabric]
    assert len(ranges.fabric) == 8
    assert all(each.subnet_of(network) for each in found)
    assert not any(one.overlaps(other) for one, other in combinations(found, 2))
    # What Google Cloud requires: a /28 for Services at the least, a /24 for filesystems.
    assert ranges.services.prefixlen <= 24
    assert ranges.peered.prefixlen <= 24
