"""Defaults of a stack file: from its name, its pools and its target; wrong values stay as they are."""

from typing import Any

import pytest

from infra.errors import InputError
from infra.stackfile import parse
from infra.stackfile.defaults import completed
from tests.infra.stackfile.wrong import good
from tests.patches import changed
from tests.tables import table

SMALL: dict[str, Any] = table(__file__)["small"]


def quotas(data: dict[str, Any]) -> dict[str, list[tuple[str, int]]]:
    stack = parse(data, name="small")
    return {each.name: [(flavor.pool, flavor.quota) for flavor in each.flavors] for each in stack.queues}


def test_a_file_of_ten_lines_is_a_whole_stack() -> None:
    stack = parse(changed(SMALL, {"pools[2].nodes": 3}), name="small")
    assert (stack.name, stack.schema_version) == ("small", 1)
    assert [team.queue for team in stack.teams] == ["gpu", "gpu"]
    assert stack.storage.object_store.bucket == "checkpoints"
    assert (stack.storage.checkpoints.size_gib, stack.storage.object_store.size_gib) == (20, 20)


def test_the_queue_has_all_accelerator_pools_cheap_before_lasting() -> None:
    data = changed(SMALL, {"pools[2].nodes": 3})
    assert quotas(data) == {"gpu": [("cheap", 6), ("lasting", 4)]}


def test_there_is_a_queue_per_fabric_class_and_none_for_pools_without_accelerators() -> None:
    stack = completed(
        {
            "target": {"kind": "aws"},
            "pools": [
                {"name": "work", "nodes": 2, "machine": "m7i.8xlarge"},
                {"name": "slow", "nodes": 2, "machine": "g6.12xlarge"},
                {"name": "block", "capacity": "reserved", "nodes": 1, "machine": "p5en.48xlarge"},
                {"name": "spot", "capacity": "spot", "nodes": 1, "machine": "p5en.48xlarge"},
            ],
        }
    ).data
    named = {each["name"]: [flavor["pool"] for flavor in each["flavors"]] for each in stack["queues"]}
    assert named == {"gpu-tcp": ["slow"], "gpu-efav3": ["block", "spot"]}


@pytest.mark.parametrize(("flavors", "expected"), table(__file__)["quotas"])
def test_a_quota_is_what_no_other_queue_has_of_the_pool(
    flavors: list[list[dict[str, Any]]], expected: list[int]
) -> None:
    queues = [{"name": f"q{index}", "cohort": "c", "flavors": each} for index, each in enumerate(flavors)]
    found = completed(SMALL | {"queues": queues}).data["queues"]
    assert [each["flavors"][0]["quota"] for each in found] == expected


def test_what_two_queues_leave_out_is_asked_for() -> None:
    queues = [{"name": name, "flavors": [{"pool": "lasting"}]} for name in ("a", "b")]
    with pytest.raises(InputError) as caught:
        parse(SMALL | {"queues": queues}, name="small")
    paths = {problem.path for problem in caught.value.problems if problem.got == "nothing"}
    assert paths == {
        *(f"queues[{index}].flavors[0].quota" for index in (0, 1)),
        *(f"teams[{index}].queue" for index in (0, 1)),
    }


def test_a_wrong_pool_is_the_only_problem_of_a_file_without_queues() -> None:
    with pytest.raises(InputError) as caught:
        parse(changed(SMALL, {"pools[1].nodes": 0, "pools[2].nodes": 3}), name="small")
    assert [problem.path for problem in caught.value.problems] == ["pools[1].nodes"]


def test_a_fixed_filesystem_is_divided_among_the_teams() -> None:
    target = {
        "kind": "aws",
        "account": "123456789012",
        "filesystem": {"kind": "lustre", "capacity": "19200Gi"},
    }
    found = completed(SMALL | {"target": target}, "mine")
    assert found.data["storage"] == {
        "checkpoints": {"size": "9600Gi"},
        "object_store": {"bucket": "123456789012-mine-checkpoints"},
    }


def test_each_default_has_its_origin_and_the_file_is_not_changed() -> None:
    before = str(SMALL)
    found = completed(SMALL, "small")
    assert str(SMALL) == before
    assert found.origins["name",] == "the stack's name"
    assert found.origins["queues", 0, "flavors", 0, "quota"] == "the accelerators of pool cheap"
    assert "pools" not in {path[0] for path in found.origins}


AWS: dict[str, Any] = table(__file__)["aws"]
"""The seven keys that a stack on AWS must have."""


def test_seven_keys_are_a_stack_on_aws() -> None:
    stack = parse(AWS, name="small")
    assert [(pool.name, pool.machine, str(pool.nodes)) for pool in stack.pools] == [
        ("on-demand", "g6.xlarge", "1"),
        ("system", "m7i.2xlarge", "3"),
    ]
    target = stack.target.model_dump()
    assert (target["zones"], target["filesystem"]["kind"]) == (
        ("us-east-2a", "us-east-2b", "us-east-2c"),
        "efs",
    )


@pytest.mark.parametrize(("target", "system"), table(__file__)["system_pools"])
def test_a_system_pool_as_is_usual_for_the_target_follows_the_others(
    target: str, system: dict[str, Any]
) -> None:
    data = good(target)
    data["pools"] = [pool for pool in data["pools"] if pool.get("role") != "system"]
    found = completed(data)
    assert found.data["pools"][-1] == {"role": "system", "name": "system", **system}
    assert found.origins["pools", len(data["pools"]), "nodes"] == f"usual for {target}"
    if target != "onprem":  # whose leaves name the nodes
        assert parse(data).pools[-1].is_system


@pytest.mark.parametrize(("kind", "region", "zones"), table(__file__)["zones"])
def test_zones_are_the_first_three_of_the_region(kind: str, region: str, zones: list[str]) -> None:
    found = completed({"target": {"kind": kind, "region": region}})
    assert found.data["target"]["zones"] == zones


def test_zones_of_an_existing_network_are_those_of_its_subnets() -> None:
    subnets = {"us-east-2c": "subnet-0123456789abcdef0", "us-east-2a": "subnet-0123456789abcdef1"}
    network = {"existing": {"id": "vpc-0123456789abcdef0", "subnets": subnets}}
    target = AWS["target"] | {"network": network}
    assert completed(AWS | {"target": target}).data["target"]["zones"] == [*subnets]


@pytest.mark.parametrize("target", ["aws", "azure", "gcp"])
def test_a_filesystem_of_one_zone_is_where_the_pools_with_a_fabric_are(target: str) -> None:
    data = good(target)
    zones = data["target"]["zones"]
    data["target"]["filesystem"] = {"kind": "lustre", "capacity": "19200Gi"}
    for pool in data["pools"][1:]:
        pool["zones"] = [zones[-1]]
    assert completed(data).data["target"]["filesystem"]["zone"] == zones[-1]
    data["target"]["filesystem"]["zone"] = zones[0]
    assert completed(data).data["target"]["filesystem"]["zone"] == zones[0]


def test_a_wrong_target_gets_no_defaults_of_another() -> None:
    assert completed({"target": {"kind": "awz"}, "pools": [{}]}).data["pools"] == [
        {"name": "on-demand", "nodes": 1}
    ]
