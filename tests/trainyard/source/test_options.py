"""`trainyard run`: the job that a command line and a job.yaml declare."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.errors import InputError
from infra.stackfile import JobSpec
from tests.infra.stackfile.test_wrong_jobs import GOOD, WRONG
from tests.patches import changed
from tests.problems import problem_of, problems_of
from tests.tables import table
from trainyard.source.files import Listing
from trainyard.source.options import RunRequest, check_program, job_of, made_up, written

NAMED_BY_US = ("name", "team")
"""Keys that the command adds if a job.yaml does not have them."""


def read(asked: RunRequest, folder: str = "/home/me/My Code") -> JobSpec:
    return job_of(asked, written(asked), "research", Path(folder))


def test_a_command_is_a_job_named_by_its_folder() -> None:
    job = read(RunRequest(["python", "train.py", "--lr", "3e-4"], environment=["A=1=2"], nodes=2))
    assert job.command == ("python", "train.py", "--lr", "3e-4")
    assert (job.team, job.num_nodes, job.environment) == ("research", 2, {"A": "1=2"})
    assert job.name.startswith("my-code-") and job.name != made_up("My Code")


@pytest.mark.parametrize(
    ("name", "offered"),
    [("Walk_2", "walk-2"), ("GPT2", "gpt2"), ("2_walk-", "walk"), ("run.v1.0", "run-v1-0")],
)
def test_an_invalid_name_is_refused_with_the_nearest_valid_one(name: str, offered: str) -> None:
    problem = problem_of(lambda: read(RunRequest(["python", "a.py"], flags={"name": name})))
    assert problem.fix == f"write {offered!r}"
    assert read(RunRequest(["python", "a.py"]), folder=f"/home/me/{name}").name.rpartition("-")[0] == offered


def test_flags_precede_the_file_and_variables_are_added(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump({**GOOD, "queue": "amd"}))
    flags = {"queue": "nvidia", "priority": "low"}
    job = read(RunRequest([str(file), "python", "b.py"], flags=flags, environment=["B=2"]))
    assert (job.queue, job.priority, job.command) == ("nvidia", "low", ("python", "b.py"))
    assert job.environment == {**GOOD["env"], "B": "2"}
    assert (job.name, job.team) == (GOOD["name"], GOOD["team"])


def test_variables_beside_a_wrong_environment_of_the_file_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text("command: [python, train.py]\nenvironment: [A, B]\n")
    with pytest.raises(InputError, match="environment"):
        read(RunRequest([str(file)], environment=["B=2"]))


@pytest.mark.parametrize("case", WRONG, ids=lambda case: " ".join(case["set"]))
def test_a_wrong_job_file_is_refused_with_the_location_of_each_problem(
    case: Mapping[str, Any], tmp_path: Path
) -> None:
    """The wrong inputs are those of the model, here in a job.yaml."""
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(changed(GOOD, case["set"])))
    if any(case["set"].get(key, "") is None for key in NAMED_BY_US):
        assert read(RunRequest([str(file)])).team == "research"
        return
    problems = problems_of(lambda: read(RunRequest([str(file)])))
    found = [f"{each.path}: {each.got}; {each.allowed}; {each.fix}" for each in problems]
    assert found == case["problems"]
    assert all(each.location.startswith(f"{file}:") for each in problems)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [([], "a command, or a job.yaml"), (["absent.yaml"], "No such file"), (["python"], "python FILE")],
)
def test_a_command_that_cannot_run_is_refused(arguments: list[str], message: str) -> None:
    with pytest.raises(InputError, match=message):
        read(RunRequest(arguments))


def test_a_train_job_is_recognized_by_its_kind() -> None:
    assert written(RunRequest([str(FOREIGN / "trainjob-kueue.yaml")])).is_train_job
    assert not written(RunRequest(["python", "a.py"])).is_train_job


FOREIGN = Path(__file__).with_name("foreign")
"""Files from the documentation of other launchers and kinds, and of users' reports."""


@pytest.mark.parametrize(("name", "what", "fix"), table(__file__)["foreign"])
def test_a_file_of_another_launcher_is_recognized_with_the_way_that_is_meant(
    name: str, what: str, fix: str
) -> None:
    problem = problem_of(lambda: written(RunRequest([str(FOREIGN / name)])))
    assert problem.got.startswith(what)
    assert re.search(fix, problem.fix), problem.fix


def test_a_variable_without_a_value_is_refused() -> None:
    with pytest.raises(InputError, match="NAME=VALUE"):
        read(RunRequest(["sh", "a.sh"], environment=["A"]))


@pytest.mark.parametrize(("arguments", "message"), table(__file__)["programs"])
def test_a_program_that_is_not_part_of_the_code_is_refused(arguments: list[str], message: str) -> None:
    files = ("train.py", "train.ipynb", "src/mine/train.py")
    with pytest.raises(InputError, match=message):
        check_program(read(RunRequest(arguments)), Listing(files, untracked=("new.py",), ignored=("out/",)))


@pytest.mark.parametrize(
    "arguments",
    [["python", "./train.py"], ["python", "/app/x.py"], ["python", "-m", "mine"], ["sh", "x.sh"]],
    ids=" ".join,
)
def test_programs_that_the_image_may_have_are_not_refused(arguments: list[str]) -> None:
    check_program(read(RunRequest(arguments)), Listing(("train.py",)))


def test_a_package_in_src_is_found_by_its_path() -> None:
    files = Listing(("src/mine/train.py",))
    check_program(read(RunRequest(["python", "-m", "mine.train"], environment=["PYTHONPATH=src"])), files)
    check_program(read(RunRequest(["python", "-m", "src.mine.train"])), files)
