"""Loading of stack files: all shipped ones are valid, and all problems of a file are reported at once."""

from datetime import UTC, datetime
from pathlib import Path
from statistics import median

import pytest
from pydantic import ValidationError

from infra.errors import InputError
from infra.stackfile import Stack, load, load_fleet, parse
from infra.stackfile.node_pool import ReservationSpec
from infra.stackfile.source import FLEET_KEY, holds
from tests.infra.golden import VARIANTS, subject
from tests.infra.plan import stack_file


def test_every_stack_file_of_the_repository_is_valid() -> None:
    files = sorted(stack_file("local").parent.glob("Pulumi.*.yaml"))
    fleets = [file for file in files if holds(file, FLEET_KEY)]
    assert fleets
    assert len(files) > len(fleets)
    for file in files:
        assert (load_fleet if file in fleets else load)(file).schema_version == 1


@pytest.mark.parametrize("file", VARIANTS, ids=subject)
def test_every_variant_of_the_tests_is_valid(file: Path) -> None:
    assert load(file).target.kind == file.stem


def test_a_stack_survives_a_round_trip(local: Stack) -> None:
    assert parse(local.model_dump(mode="json", by_alias=True, exclude_none=True)) == local


def test_a_stack_cannot_be_changed(local: Stack) -> None:
    with pytest.raises(ValidationError):
        local.name = "other"


def test_off_and_no_are_text_as_they_are_for_the_engine(tmp_path: Path) -> None:
    above = "  trainyard:stack:\n"
    text = stack_file("local").read_text().replace(above, f"{above}    operators: {{mpi: off}}\n")
    path = tmp_path / "Pulumi.test.yaml"
    path.write_text(text)
    assert load(path).operators.mpi == "off"


def test_data_without_a_file_has_its_problems_located_by_key() -> None:
    with pytest.raises(InputError, match=r"target.kind \(trainyard:stack\)"):
        parse({"target": {"kind": "nowhere"}})


def test_a_missing_file_is_a_problem(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="No such file"):
        load(tmp_path / "Pulumi.none.yaml")


@pytest.mark.parametrize(
    "written",
    [
        "2030-01-07T11:30:00Z",
        "2030-01-07T11:30Z",
        "2030-01-07 11:30:00+00:00",
        datetime(2030, 1, 7, 11, 30, tzinfo=UTC),
    ],
)
def test_a_timestamp_is_the_same_as_a_string_or_a_yaml_timestamp(written: str) -> None:
    assert ReservationSpec(id="cr-0", kind="block", starts=written).starts == "2030-01-07T11:30:00Z"


def test_shipped_stacks_are_short() -> None:
    lengths = [len(file.read_text().splitlines()) for file in stack_file("local").parent.glob("Pulumi.*")]
    assert median(lengths) <= 30
