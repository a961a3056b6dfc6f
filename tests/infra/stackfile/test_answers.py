"""Answers to a template's questions override values of the stack file, wherever a stack is read."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.common.artifacts import ROOT
from infra.errors import InputError, Problem
from infra.stackfile import load
from infra.stackfile.answers import (
    answered,
    answers_in,
    answers_to,
    is_answerable,
    overrides,
    path_of,
    without_secrets,
)
from infra.stackfile.source import STACK_KEY, read
from tests.tables import table
from trainyard.commands.stack.validate import validate

SECTION = {"target": {"access": {"admins": ["old"]}, "public": False}, "pools": [{"nodes": 1}]}


@pytest.mark.parametrize(("key", "path"), table(__file__)["keys"])
def test_a_key_is_read_as_problems_spell_a_path(key: str, path: Any) -> None:
    assert path_of(key, STACK_KEY) == (path and tuple(path))


@pytest.mark.parametrize(("path", "answer", "read"), table(__file__)["answers"])
def test_an_answer_is_read_as_the_type_of_the_replaced_value(path: Any, answer: str, read: object) -> None:
    made = answered(SECTION, {tuple(path): answer})
    assert is_answerable(made, tuple(path))
    for part in path:
        made = made[part]
    assert made == read and type(made) is type(read)
    assert SECTION["pools"] == [{"nodes": 1}], "the section itself is as it was"


@pytest.mark.parametrize("path", table(__file__)["unanswerable"])
def test_only_single_values_can_be_answered(path: Any) -> None:
    assert not is_answerable(SECTION, tuple(path))
    assert answered(SECTION, {tuple(path): "x"}) == SECTION


def test_a_component_takes_the_answers_of_the_section_that_it_is_given_as_it_stands() -> None:
    config = {STACK_KEY: json.dumps(SECTION), f"{STACK_KEY}.pools[0].nodes": "3", "trainyard:backend": "x"}
    assert answers_in(config, STACK_KEY) == {("pools", 0, "nodes"): "3"}
    answers = answers_to(SECTION, config, STACK_KEY)
    assert answered(SECTION, answers)["pools"] == [{"nodes": 3}]
    assert answers_to({**SECTION, "name": "other"}, config, STACK_KEY) == {}
    assert answers_to(SECTION, {}, STACK_KEY) == {}


def test_an_answer_that_changes_a_value_is_reported_with_both_and_their_locations() -> None:
    config = {
        f"{STACK_KEY}.pools[0].nodes": "3",
        f"{STACK_KEY}.target.public": "false",  # the same as in the section
        f"{STACK_KEY}.target.access.admins[0]": "new",
    }
    shown = without_secrets(config, [f"{STACK_KEY}.target.access.admins[0]"])
    changes = [str(each) for each in overrides(SECTION, answers_in(shown, STACK_KEY), STACK_KEY)]
    assert changes == [
        "trainyard:stack.pools[0].nodes is 3, in place of 1 in trainyard:stack",
        "trainyard:stack.target.access.admins[0] is '[secret]', in place of 'old' in trainyard:stack",
    ]


def written(folder: Path, **answers: object) -> Path:
    """Write a shipped stack file with these answers after its last line."""
    file = folder / "Pulumi.dev.yaml"
    config = {f"{STACK_KEY}.{key}": value for key, value in answers.items()}
    lines = yaml.safe_dump(config, sort_keys=False).splitlines()
    shipped = (ROOT / "stacks/Pulumi.local.yaml").read_text().rstrip("\n")
    file.write_text("\n".join([shipped, *(f"  {line}" for line in lines)]) + "\n")
    return file


def problems(file: Path) -> list[Problem]:
    with pytest.raises(InputError) as error:
        load(file)
    return list(error.value.problems)


def test_a_stack_file_has_its_answers_and_problems_are_at_their_lines(tmp_path: Path) -> None:
    stack = load(written(tmp_path, **{"pools[1].nodes": "7", "name": "mine"}))
    assert (stack.name, stack.pools[1].num_nodes) == ("mine", 7)
    file = written(tmp_path, **{"pools[1].nodes": "-7"})
    (problem,) = problems(file)
    assert (problem.path, problem.got) == ("pools[1].nodes", "-7")
    line = len(file.read_text().splitlines())
    assert problem.location.startswith(f"{file}:{line}:")


def test_validate_reports_which_value_holds_where_file_and_answer_differ(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = written(tmp_path, **{"pools[1].nodes": "7", "name": "local"})
    monkeypatch.setenv("TRAINYARD_STACKS", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "60")
    validate("dev")
    (change,) = read(file)[1].overrides
    number = len(file.read_text().splitlines()) - 1
    assert change.at.startswith(f"{file}:{number}:") and change.former_at.startswith(f"{file}:")
    assert capsys.readouterr().out.splitlines()[-1] == (
        f"  trainyard:stack.pools[1].nodes is 7 ({change.at}), in place of {change.former} in"
        f" trainyard:stack ({change.former_at})"
    )


@pytest.mark.parametrize(
    "answers", [{"region": "x"}, {"pools[9].name": "x"}, {"pools": "x"}, {"name": ["x"]}]
)
def test_an_answer_to_no_question_is_refused_at_its_line(answers: Any, tmp_path: Path) -> None:
    (problem,) = problems(written(tmp_path, **answers))
    assert problem.path == f"config.{STACK_KEY}.{next(iter(answers))}"
    assert problem.got == "an answer without a question"
