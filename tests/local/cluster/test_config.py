"""The configuration of an embedded cluster: validation, addresses, and its round trip through JSON."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from infra.errors import InputError
from local.cluster.addresses import AddressPlan, allocate
from local.cluster.config import ClusterConfig, NodeConfig
from tests.problems import problems_of

NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9]{0,8}", fullmatch=True), min_size=1, max_size=64, unique=True)


def data(**changes: Any) -> dict[str, Any]:
    node = {
        "name": "spot-0",
        "pool": "spot",
        "gpus": 2,
        "labels": {"trainyard.dev/pool": "spot"},
        "taints": [{"key": "trainyard.dev/spot", "value": "true", "effect": "NoSchedule"}],
        "images": ["training"],
    }
    config = {"name": "local", "kubernetesVersion": "v1.35.4", "nodes": [node], "dataDir": "/data"}
    return {**config, **changes}


def test_a_config_is_the_same_after_a_round_trip_through_json() -> None:
    config = ClusterConfig.parse(data())
    assert ClusterConfig.parse(json.loads(json.dumps(config.to_json()))) == config


def test_json_keys_are_camel_case() -> None:
    keys = ClusterConfig.parse(data()).to_json().keys()
    ranges = {"podCidr", "serviceCidr", "nodeCidr"}
    assert keys == {"name", "kubernetesVersion", "nodes", "dataDir", "volumeSizes"} | ranges


@pytest.mark.parametrize("sizes", [{"bounded": 0}, {"../bounded": 1}, {"": 1}])
def test_a_volume_has_a_folder_of_the_data_and_a_size(sizes: dict[str, int]) -> None:
    with pytest.raises(InputError, match=r"cluster\.volumeSizes"):
        ClusterConfig.parse(data(volumeSizes=sizes))


def test_every_problem_of_a_config_is_reported_with_its_path() -> None:
    wrong = data(name="Local!", extra=1)
    wrong["nodes"][0]["gpus"] = -1
    paths = {problem.path for problem in problems_of(lambda: ClusterConfig.parse(wrong))}
    assert paths == {"cluster.name", "cluster.nodes.0.gpus", "cluster.extra"}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"podCidr": "10.96.0.0/16"}, "overlap"),
        ({"nodeCidr": "10.244.0.0/24"}, "overlap"),
        ({"nodeCidr": "nodes"}, "no IPv4 network"),
        ({"nodeCidr": "10.1.0.0/28"}, "too small"),
        ({"podCidr": "10.244.0.0/24"}, "too small"),
        ({"serviceCidr": "10.96.0.0/28"}, "must be /12 to /24"),
        ({"nodes": [{"name": f"n{i}", "pool": "p"} for i in range(65)]}, "at most 64 nodes"),
    ],
)
def test_ranges_that_do_not_fit_are_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClusterConfig.parse(data(**changes))


def test_two_nodes_of_one_name_are_refused() -> None:
    node = data()["nodes"][0]
    with pytest.raises(InputError, match="must be unique"):
        ClusterConfig.parse(data(nodes=[node, node]))


@given(NAMES)
def test_no_two_parts_share_an_address(names: list[str]) -> None:
    nodes = tuple(NodeConfig(name=name, pool="p") for name in names)
    config = ClusterConfig(name="c", kubernetes_version="v1", nodes=nodes, data_dir="/data")
    plan = AddressPlan.of(config, allocate(names, {}))
    addresses = [plan.control, plan.host, *(node.address for node in plan.nodes.values())]
    subnets = sorted(node.pod_subnet for node in plan.nodes.values())
    assert len(set(addresses)) == len(addresses)
    assert all(address in plan.node_network for address in addresses)
    assert plan.node_network.broadcast_address not in addresses
    assert all(not one.overlaps(other) for one, other in pairwise(subnets))
    assert all(subnet.subnet_of(plan.pod_network) for subnet in subnets)


@given(NAMES, NAMES)
def test_a_remaining_node_keeps_its_index(before: list[str], after: list[str]) -> None:
    first = allocate(before, {})
    second = allocate(after, first)
    assert set(second) == set(after)
    assert len(set(second.values())) == len(after)
    assert all(second[name] == first[name] for name in set(before) & set(after))
