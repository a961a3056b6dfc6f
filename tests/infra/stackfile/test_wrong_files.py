"""Wrong stack and fleet files, each a patch of a valid one or a whole file, with the exact messages."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.errors import ExitCode, InputError
from infra.stackfile import Stack, parse, parse_fleet, parse_job
from infra.stackfile.source import KeyPath, show
from tests.infra.golden import assert_matches
from tests.infra.stackfile import wrong
from tests.infra.stackfile.wrong import WrongFile

STACKS = [case for target in wrong.STACKS for case in wrong.cases(target)]
FLEETS = list(wrong.cases("fleet"))
Load = Callable[[Path], object]


def refused(load: Load, file: Path) -> InputError:
    with pytest.raises(InputError) as caught:
        load(file)
    assert caught.value.exit_code is ExitCode.WRONG_INPUT
    return caught.value


def paths(data: Any, path: KeyPath = ()) -> Iterator[KeyPath]:
    yield path
    entries = data.items() if isinstance(data, dict) else enumerate(data) if isinstance(data, list) else ()
    for key, value in entries:
        yield from paths(value, (*path, key))


def last_key(data: Any, shown: str) -> str:
    """Return the last key on the path `shown` that the data has."""
    path = max((each for each in paths(data) if shown.startswith(show(each))), key=len)
    return next((part for part in reversed(path) if isinstance(part, str)), "")


@pytest.mark.parametrize("case", [*STACKS, *FLEETS], ids=str)
def test_a_wrong_stack_fleet_or_job_is_reported_with_path_allowed_and_fix(
    case: WrongFile, tmp_path: Path
) -> None:
    file = case.write(tmp_path)
    error = refused(wrong.read_file, file)
    assert wrong.lines_of(error) == case.problems
    lines = file.read_text().splitlines()
    whole = case.job or next(iter(case.config.values()))
    for problem in error.problems:
        number, _ = problem.location.removeprefix(f"{file}:").split(":")
        line = lines[int(number) - 1].lstrip()
        assert last_key(whole, problem.path) in line or line.startswith("- ")


@pytest.mark.parametrize("path", wrong.WHOLE, ids=lambda path: path.stem)
def test_a_wrong_file_is_reported_with_line_and_column(path: Path) -> None:
    file = wrong.wrong_part(path)
    shown = str(refused(wrong.read_file, file)).replace(str(file), file.name)
    assert_matches(wrong.readable(shown), path.with_suffix(".txt"))


@pytest.mark.parametrize("target", [*wrong.STACKS, "fleet"])
def test_the_files_that_they_patch_are_valid(target: str) -> None:
    for name in wrong.read(target)["good"]:
        whole, job = wrong.good(target, name), wrong.good_job(target, name)
        stack = parse_fleet(whole) if target == "fleet" else parse(whole)
        if job is not None and isinstance(stack, Stack):
            parse_job(job, stack=stack)


@pytest.mark.parametrize("target", [*wrong.STACKS, "fleet"])
def test_the_file_is_as_its_program_writes_it(target: str) -> None:
    text = wrong.text_of(wrong.read(target))
    assert (wrong.FOLDER / f"{target}.yaml").read_text() == text
    assert max(map(len, text.splitlines())) <= wrong.WIDTH


def test_no_case_is_missing() -> None:
    names = [case.name for case in STACKS] + [path.stem for path in wrong.WHOLE]
    assert len(names) == len(set(names)) + 1, "a stack and a fleet have many problems at once"
    assert len(names) + len(FLEETS) >= 442
    for cloud in ("aws-", "azure-", "coreweave-", "gcp-", "onprem-"):
        assert sum(name.startswith(cloud) for name in names) >= 30
    assert len(FLEETS) >= 15
