"""A file in words that others have replaced is refused at once, each with its new word."""

from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import InputError
from infra.stackfile import parse, parse_fleet, parse_job
from tests.patches import changed
from tests.tables import table

STACKS = Path(__file__).parents[3] / "stacks"


def shipped(name: str, key: str = "trainyard:stack") -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((STACKS / f"Pulumi.{name}.yaml").read_text())["config"][key]
    return found


JOB = {"name": "a", "team": "b", "command": ["python", "train.py"]}
KEYS = table(__file__)["keys"]
JOB_KEYS = table(__file__)["job_keys"]
WORDS = table(__file__)["words"]
"""Keys of a job that words of its program have replaced."""
VALUES = table(__file__)["values"]


def refused(read: Any, data: Any) -> dict[str, str]:
    with pytest.raises(InputError) as caught:
        read(data)
    return {problem.path: problem.fix for problem in caught.value.problems}


@pytest.mark.parametrize(("path", "word"), [*KEYS.items(), *VALUES.items()])
def test_a_former_key_or_value_of_a_stack_is_refused_with_the_new_one(
    path: str, word: tuple[Any, str]
) -> None:
    value, new = word
    fix = refused(parse, changed(shipped("local"), {path: value}))[path]
    assert new in fix if path in VALUES else fix == f"did you mean {new!r}?"


@pytest.mark.parametrize(("path", "word"), [*JOB_KEYS.items(), *WORDS.items()])
def test_a_former_key_of_a_job_is_refused_with_the_new_one_or_its_words(
    path: str, word: tuple[Any, str]
) -> None:
    value, new = word
    fix = new if path in WORDS else f"did you mean {new!r}?"
    assert refused(parse_job, JOB | {path: value}) == {path: fix}


def test_a_job_in_a_stack_file_is_refused_with_the_way_to_run_it() -> None:
    fix = "write it into a file of its own, job.yaml, and pass that: trainyard up --job job.yaml"
    assert refused(parse, changed(shipped("local"), {"job": JOB})) == {"job": fix}


def test_a_former_value_says_nothing_of_a_key_that_never_had_it() -> None:
    none = refused(parse, changed(shipped("aws"), {"pools[1].placement": "none", "operators.kueue": "any"}))
    assert none["pools[1].placement"] == none["operators.kueue"] == "choose one of these"


def test_sizes_and_times_without_a_unit_are_refused_with_one() -> None:
    assert refused(parse_job, JOB | {"memory": 64, "time_limit": 90}) == {
        "memory": "write its unit, such as 64Gi",
        "time_limit": "write its unit, such as 90m",
    }


def test_a_former_runtime_fabric_and_part_of_a_fleet_have_their_new_names() -> None:
    local = parse(shipped("local"))
    job = JOB | {"team": "research", "runtime": "torch-none"}
    assert refused(partial(parse_job, stack=local), job) == {"runtime": "did you mean 'torch-tcp'?"}
    needs = refused(parse_job, JOB | {"needs": {"fabric": "any"}})
    assert needs == {"needs.fabric": "write rdma"}
    fleet = shipped("hybrid", "trainyard:fleet")
    former = {("hub" if key == "manager" else key): value for key, value in fleet.items()}
    assert refused(parse_fleet, former) == {"hub": "did you mean 'manager'?"}
