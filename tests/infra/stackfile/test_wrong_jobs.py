"""Wrong job files, each a patch of a valid one, with the exact messages."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import ExitCode, InputError
from infra.stackfile import load_job, parse_job
from tests.patches import changed
from tests.tables import table

FOLDER = Path(__file__).parent / "jobs"
GOOD = yaml.safe_load((FOLDER / "good.yaml").read_text())
WRONG = yaml.safe_load((FOLDER / "wrong.yaml").read_text())


def problems_of(job: Mapping[str, Any]) -> list[str]:
    with pytest.raises(InputError) as caught:
        parse_job(job)
    assert caught.value.exit_code is ExitCode.WRONG_INPUT
    return [f"{each.path}: {each.got}; {each.allowed}; {each.fix}" for each in caught.value.problems]


@pytest.mark.parametrize("case", WRONG, ids=lambda case: " ".join(case["set"]))
def test_a_wrong_job_is_reported_with_path_allowed_and_fix(case: Mapping[str, Any]) -> None:
    assert problems_of(changed(GOOD, case["set"])) == case["problems"]


def test_they_cover_the_keys() -> None:
    covered = {path.split(".")[0].split("[")[0] for case in WRONG for path in case["set"]}
    assert set(GOOD) <= covered


def test_a_valid_job_is_read_from_its_file_with_defaults(tmp_path: Path) -> None:
    job = load_job(FOLDER / "good.yaml", {"name": "other", "ranks_per_node": 4})
    assert (job.name, job.ranks_per_node) == ("tune", 4)
    assert parse_job(GOOD).ranks_per_node == 8, "python starts once per accelerator"
    assert parse_job({**GOOD, "command": ["torchrun", "x.py"], "restarts": None}).ranks_per_node == 1


@pytest.mark.parametrize(("text", "got"), table(__file__))
def test_a_file_of_which_yaml_makes_no_data_is_refused(tmp_path: Path, text: str, got: str) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(text)
    with pytest.raises(InputError, match=got) as caught:
        load_job(file)
    assert caught.value.problems[0].path == str(file)


def test_a_problem_names_the_line_of_the_file(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("name: tune\nteam: research\ncommand: [python, train.py]\nport: {web: 8080}\n")
    with pytest.raises(InputError) as caught:
        load_job(file)
    [problem] = caught.value.problems
    assert (problem.path, problem.location, problem.fix) == ("port", f"{file}:4:1", "did you mean 'ports'?")
