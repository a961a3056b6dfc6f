"""Unquoted scalars of stack files: what the engine passes to a program, and what `validate` says of them."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import InputError
from infra.stackfile import load
from infra.stackfile.scalars import value_of
from infra.stackfile.source import read, read_whole
from tests.infra.golden import CASES
from tests.tables import table

PASSED: dict[str, Any] = table(__file__)["passed"]
"""Scalar → value in PULUMI_CONFIG, as Pulumi 3.230.0 passed it; tests/e2e/test_language_host.py asks it
again."""
BLOCK = (CASES / "block" / "aws.yaml").read_text()
START = "2036-01-07T11:30:00Z"


@pytest.mark.parametrize("text", PASSED)
def test_a_scalar_is_read_as_the_engine_passes_it(text: str) -> None:
    value = value_of(text)
    assert (type(value), value) == (type(PASSED[text]), PASSED[text])


def loaded(tmp_path: Path, *replaced: tuple[str, str]) -> Any:
    text = BLOCK
    for old, new in replaced:
        assert old in text
        text = text.replace(old, new, 1)
    file = tmp_path / "Pulumi.block.yaml"
    file.write_text(text)
    return load(file)


@pytest.mark.parametrize("written", [START, f'"{START}"', "2036-01-07 11:30:00"])
def test_a_blocks_times_need_no_quotes(tmp_path: Path, written: str) -> None:
    assert loaded(tmp_path, (START, written)).pools[1].reservation.starts == START


def test_the_program_finds_the_lines_of_what_the_engine_has_passed(tmp_path: Path) -> None:
    """It drops the positions in the file if both differ."""
    file = tmp_path / "Pulumi.block.yaml"
    file.write_text(BLOCK)
    data, _ = read(file)
    assert data["pools"][1]["reservation"]["starts"] == "2036-01-07 11:30:00 +0000 UTC"


REFUSED = table(__file__)["refused"]


@pytest.mark.parametrize("case", REFUSED)
def test_a_scalar_that_means_something_else_is_refused_as_it_is_written(tmp_path: Path, case: str) -> None:
    replaced, path, got, fix = REFUSED[case]
    with pytest.raises(InputError) as refused:
        loaded(tmp_path, replaced)
    first = refused.value.problems[0]
    assert (first.path, first.got) == (path, got)
    assert fix in first.fix
    paths = [problem.path for problem in refused.value.problems]
    assert paths.count(path) == 1


def test_numbers_of_any_notation_are_numbers_where_one_is_read(tmp_path: Path) -> None:
    stack = loaded(tmp_path, ("quota: 16", "quota: 0x10"), ("size: 2400Gi", "size: 2400Gi"))
    assert stack.queues[0].flavors[0].quota == 16
    assert stack.storage.checkpoints.size_gib == 2400


def test_a_file_that_the_engine_does_not_see_is_read_as_it_is_written(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [python, train.py, 3e-4, 012, 2026-12-01, 1_0, .inf]\nnodes: 2\n")
    data, source = read_whole(file)
    assert data == {"command": ["python", "train.py", "3e-4", "012", "2026-12-01", "1_0", ".inf"], "nodes": 2}
    assert not source.problems


def test_merged_mappings_are_read() -> None:
    from infra.stackfile.source import _Loader

    assert yaml.load("a: &a {b: 1}\nc: {<<: *a, d: '2'}", Loader=_Loader)["c"] == {"b": 1, "d": "2"}
