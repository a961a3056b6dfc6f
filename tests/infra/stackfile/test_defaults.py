"""Defaults of a stack file: from its name, its pools and its target; wrong values stay as they are."""

from typing import Any

import pytest

from infra.errors import InputError
from infra.stackfile import parse
from infra.stackfile.defaults import completed
from tests.patches import changed

GPU = {"accelerator": {"model": "simulated", "count": 2}}
SMALL: dict[str, Any] = {
    "target": {"kind": "local"},
    "pools": [
        {"name": "system", "role": "system", "nodes": 1},
        {"name": "lasting", "nodes": 2, **GPU},
        {"name": "cheap", "capacity": "spot", "nodes": "0..3", **GPU},
    ],
    "teams": [{"name": "research"}, {"name": "vision"}],
}


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


@pytest.mark.parametrize(
    ("flavors", "expected"),
    [
        ([[{"pool": "lasting"}]], [4]),
        ([[{"pool": "lasting", "quota": 3}]], [3]),
        ([[{"pool": "lasting"}], [{"pool": "lasting", "quota": 1}]], [3, 1]),
        ([[{"pool": "lasting"}], [{"pool": "lasting", "quota": 0}]], [4, 0]),
    ],
)
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
