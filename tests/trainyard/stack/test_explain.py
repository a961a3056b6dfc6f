"""`trainyard explain`: every key of the shipped stack files is found, with its type, default and meaning."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.pack import POLICIES
from tests.problems import problem_of
from trainyard.stack.explain import JUDGES, example, find, lines
from trainyard.stack.schema import file_schema

SCHEMA = file_schema()
STACKS = sorted((Path(__file__).parents[3] / "stacks").glob("Pulumi.[!h]*.yaml"))


def paths(data: Any, above: str = "") -> Iterator[str]:
    """Yield the paths of a stack's keys, without positions in lists."""
    if isinstance(data, list):
        for each in data:
            yield from paths(each, above)
    elif isinstance(data, dict):
        for key, value in data.items():
            path = f"{above}.{key}".removeprefix(".")
            yield path
            if key not in ("overrides", "tags", "labels", "priorities", "nodes"):
                yield from paths(value, path)


@pytest.mark.parametrize("file", STACKS, ids=lambda file: str(file.name))
def test_each_key_of_a_shipped_stack_is_explained(file: Path) -> None:
    stack = yaml.safe_load(file.read_text())["config"]["trainyard:stack"]
    for path in paths(stack):
        found = find(SCHEMA, path)
        assert found and all(key.type and key.meaning for key in found if not path.endswith("kind")), path


def test_a_key_of_several_targets_has_a_block_for_each_form() -> None:
    aws, gcp = find(SCHEMA, "target.network.nat")
    assert (aws.targets, aws.default, gcp.targets, gcp.default) == (("aws",), '"one"', ("gcp",), "true")


def test_a_key_of_a_profile_has_its_default_in_each() -> None:
    aws, gcp = find(SCHEMA, "target.network.nat")
    assert (aws.profiles, gcp.profiles) == (('dev "one", team "one", production "per-zone"   aws',), ())
    (nodes,) = find(SCHEMA, "pools.nodes")
    assert "  profile  dev 2, team 3, production 3   aws (system pool)" in lines([nodes])


def test_a_key_of_a_job_file_is_explained_too() -> None:
    [nodes] = find(SCHEMA, "job.nodes")
    assert (nodes.type, nodes.default) == ("whole number, 1 to 5000", "1")
    assert "accelerator" in "\n".join(lines(find(SCHEMA, "job.needs")))


def test_a_section_lists_its_keys() -> None:
    text = "\n".join(lines(find(SCHEMA, "queues.flavors")))
    assert "quota" in text and "pool  " in text and "[" not in text


@pytest.mark.parametrize(
    ("path", "fix"),
    [("pools.zone", "did you mean 'zones'?"), ("pool", "did you mean 'pools'?"), ("name.first", "")],
)
def test_an_unknown_key_is_refused_with_the_nearest_one(path: str, fix: str) -> None:
    assert problem_of(lambda: find(SCHEMA, path)).fix == fix


def test_a_key_has_an_example_of_its_target_and_the_policies_that_look_at_it() -> None:
    folder = STACKS[0].parent
    [zones] = find(SCHEMA, "pools.zones")
    assert f"  example  {example(folder, zones)}" in lines([zones], folder)
    assert example(folder, zones).startswith("zones: [")
    assert zones.policies == "spot-diversified, fabric-one-zone"
    aws = next(each for each in find(SCHEMA, "target.filesystem.efa") if "aws" in each.targets)
    assert example(folder, aws) == "efa: true   Pulumi.aws.yaml"


def test_the_policies_of_keys_exist_and_so_do_the_keys() -> None:
    known = {each.name for each in POLICIES}
    for path, names in JUDGES.items():
        assert find(SCHEMA, path)
        assert set(names.split(", ")) <= known
