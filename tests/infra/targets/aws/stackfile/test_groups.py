"""Node groups of a pool: how machine types, zones and capacity types are divided into groups."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.aws.stackfile.groups import groups

ZONES = ("us-east-2a", "us-east-2b", "us-east-2c")
TYPES = ["m7i.xlarge", "m7i.2xlarge", "m7i.4xlarge"]


def pool(**fields: Any) -> NodePoolSpec:
    usual = {"name": "work", "capacity": "spot", "nodes": 9, "machine": TYPES[0]}
    return NodePoolSpec.model_validate({**usual, **fields})


@given(st.integers(0, 2), st.integers(1, 3), st.integers(1, 500))
def test_spot_is_one_group_over_all_its_markets(others: int, zones: int, nodes: int) -> None:
    """EC2 takes from another market what one does not have."""
    (found,) = groups(pool(alternatives=TYPES[1 : 1 + others] or None, nodes=nodes), ZONES[:zones])
    assert [machine.name for machine in found.machines] == TYPES[: 1 + others]
    assert (found.zones, found.num_nodes) == (ZONES[:zones], nodes)


def test_machines_with_another_launch_template_have_a_separate_group() -> None:
    """The template lists the network cards, and these two machines have 32 and 16."""
    found = groups(pool(machine="p5en.48xlarge", alternatives=["p5e.48xlarge"], nodes=5), ZONES[:1])
    shares = {group.role: group.num_nodes for group in found}
    assert shares == {"work-p5en-48xlarge-us-east-2a": 3, "work-p5e-48xlarge-us-east-2a": 2}


@given(st.integers(0, 2), st.integers(1, 3), st.integers(9, 500))
def test_autoscaled_spot_is_a_group_per_market_and_shares_nodes(others: int, zones: int, nodes: int) -> None:
    asked = pool(alternatives=TYPES[1 : 1 + others] or None, nodes=f"0..{nodes}")
    found = groups(asked, ZONES[:zones])
    markets = {(group.machine.name, group.zones) for group in found}
    assert len(found) == len(markets) == (1 + others) * zones
    assert all(len(group.zones) == 1 for group in found)
    shares = [group.num_nodes for group in found]
    assert sum(shares) == nodes
    assert max(shares) - min(shares) <= 1


def test_an_added_market_renames_no_other_of_an_autoscaled_pool() -> None:
    before = {group.role for group in groups(pool(nodes="0..9"), ZONES[:2])}
    after = {group.role for group in groups(pool(nodes="0..9", alternatives=["m7i.2xlarge"]), ZONES)}
    assert before < after


def test_on_demand_is_one_group_over_its_zones() -> None:
    (group,) = groups(pool(capacity="on-demand"), ZONES)
    assert (group.role, group.zones, group.num_nodes) == ("work", ZONES, 9)


def test_only_on_demand_with_a_fabric_has_a_placement_group() -> None:
    reservation = {"id": "cr-0123456789abcdef0"}
    kinds: dict[str, dict[str, Any]] = {"on-demand": {}, "spot": {}, "reserved": {"reservation": reservation}}
    placed = {
        (capacity, machine): groups(pool(capacity=capacity, machine=machine, **more), ZONES[:1])[
            0
        ].has_placement_group
        for capacity, more in kinds.items()
        for machine in ("p5en.48xlarge", "m7i.xlarge")
    }
    assert [key for key, value in placed.items() if value] == [("on-demand", "p5en.48xlarge")]


@given(st.integers(0, 40), st.integers(1, 3))
def test_an_autoscaled_pool_is_a_group_per_zone_and_shares_out_both_sizes(least: int, zones: int) -> None:
    asked = pool(capacity="on-demand", nodes=f"{least}..41")
    found = groups(asked, ZONES[:zones])
    assert [group.zones for group in found] == [(zone,) for zone in ZONES[:zones]]
    assert (sum(group.min_nodes for group in found), sum(group.num_nodes for group in found)) == (least, 41)
    assert all(group.min_nodes <= group.num_nodes for group in found)


def test_a_pool_with_all_nodes_as_minimum_is_not_autoscaled() -> None:
    (group,) = groups(pool(capacity="on-demand", nodes="9..9"), ZONES)
    assert not group.is_autoscaled
    assert group.role == "work"
