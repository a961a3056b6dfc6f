"""Profiles of a stack file: sets of defaults, each of which the schema has and every target can expand."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.stackfile import parse, profiles
from infra.stackfile.defaults import completed
from infra.stackfile.profiles import PROFILES, SYSTEM, TABLE
from tests.infra.stackfile.wrong import STACKS, good
from trainyard.stack.explain import find
from trainyard.stack.schema import file_schema

FILESYSTEMS: dict[str, list[dict[str, Any]]] = {
    "aws": [{"kind": "efs"}],
    "azure": [{"kind": "netapp", "capacity": "4Ti"}],
    "gcp": [{"kind": "filestore", "capacity": "9216Gi"}],
}


def minimal(target: str) -> Iterator[dict[str, Any]]:
    """Yield a target's valid stack with each filesystem of the table, without what a profile sets."""
    for filesystem in [None, *FILESYSTEMS.get(target, [])]:
        data = good(target)
        if filesystem:
            data["target"]["filesystem"] = filesystem
        if target != "onprem":  # whose leaves name the nodes
            data["pools"] = [pool for pool in data["pools"] if pool.get("role") != "system"]
        yield data


@pytest.mark.parametrize("profile", PROFILES)
@pytest.mark.parametrize("target", STACKS)
def test_a_profile_expands_to_a_valid_stack(target: str, profile: str) -> None:
    for data in minimal(target):
        assert parse(data | {"profile": profile}).profile == profile


@pytest.mark.parametrize("section", TABLE)
def test_every_key_of_the_table_is_one_of_the_schema(section: str) -> None:
    kind = section.partition(" ")[0]
    for key in TABLE[section]:
        forms = find(file_schema(), key.replace(SYSTEM, "pools"))
        assert any(kind in form.targets or not form.targets for form in forms), key


def test_each_value_of_a_profile_has_its_origin() -> None:
    found = completed(good("aws") | {"profile": "production"})
    assert found.data["target"]["network"] == {"nat": "per-zone"}
    assert found.origins["target", "network", "nat"] == "profile production"
    assert found.origins["logs", "retention_days"] == "profile production"


def test_a_value_of_the_file_is_kept() -> None:
    data = good("aws") | {"profile": "production", "logs": {"retention_days": 5}}
    assert parse(data).logs.retention_days == 5
    assert parse(data | {"logs": {}}).logs.retention_days == 90


def test_a_stack_without_a_profile_has_todays_defaults() -> None:
    assert parse(good("aws")).logs.retention_days == 30
    assert "profile" not in parse(good("aws") | {"profile": "dev"}).model_dump()


def test_the_table_has_at_most_eighty_lines() -> None:
    lines = Path(profiles.__file__).read_text().splitlines()
    start, end = lines.index("TABLE: Mapping[str, Mapping[str, Row]] = {"), lines.index("}")
    assert end - start < 80
