"""`trainyard team new`, `renew` and `close`, of a stack with a folder of files."""

import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from infra.errors import InputError
from infra.stackfile import load
from infra.stackfile.self_service import today
from tests.infra.stackfile.test_team_files import stack
from trainyard.commands.team.close import close
from trainyard.commands.team.new import new
from trainyard.commands.team.renew import renew
from trainyard.stack.session import Session
from trainyard.stack.team_files import needed_approvals

LATER = "2999-12-31"


@pytest.fixture
def stacks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINYARD_STACKS", str(tmp_path))
    return stack(tmp_path, keys="    self_service: {approvers: ['@org/p'], max_quota: 1, grace_days: 3}\n")


def contents(stacks: Path) -> dict[str, str]:
    return {file.name: file.read_text() for file in stacks.parent.rglob("*.yaml")}


def test_a_number_is_the_quota_of_a_queues_only_pool(stacks: Path) -> None:
    text = stacks.read_text().replace(
        "flavors: [{pool: spot}, {pool: on-demand}]", "flavors: [{pool: on-demand}]"
    )
    stacks.write_text(text)
    new("vision", "ada@example.com", ["vision"], quota="1", stack="local")
    assert load(stacks).teams[-1].quota == {"on-demand": 1}


@pytest.mark.parametrize(
    ("name", "quota", "expires", "path"),
    [
        ("vision", "2", LATER, "--quota"),
        ("vision", "spot=100", "soon", "teams[2].expires"),
        ("Vision", "", LATER, "NAME"),
        ("research", "", LATER, "teams[2].name"),
    ],
)
def test_a_wrong_value_writes_nothing(stacks: Path, name: str, quota: str, expires: str, path: str) -> None:
    before = contents(stacks)
    with pytest.raises(InputError) as caught:
        new(name, "ada@example.com", ["vision"], quota=quota, expires=expires, stack="local")
    assert path in [each.path for each in caught.value.problems]
    assert contents(stacks) == before


def test_a_team_is_renewed_and_closed_in_its_file_alone(
    stacks: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    new("vision", "ada@example.com", ["vision"], expires=LATER, stack="local")
    file, before = stacks.parent / "teams" / "vision.yaml", contents(stacks)
    file.write_text(f"# of Ada's project\n{file.read_text()}")
    until = today() + timedelta(9)
    renew("vision", datetime.combine(until, datetime.min.time()), "local")
    close("vision", "local")
    after = contents(stacks)
    text = after.pop("vision.yaml")
    assert text.startswith("# of Ada's project\n") and text.endswith(f"expires: {until}\nclosed: {today()}\n")
    assert after.items() <= before.items()
    assert load(stacks).teams[-1].is_held(today())
    assert f"from {today() + timedelta(3)} on: git rm {file}" in capsys.readouterr().out


def test_approvals_are_those_of_files_that_a_commit_lacks(stacks: Path) -> None:
    commit = ["bash", "-ec", "git init -q; git add .; git -c user.name=a -c user.email=a@b commit -qm a"]
    for name in ("vision", "speech"):
        new(name, "ada@example.com", ["a"], quota="spot=1,on-demand=1", expires=LATER, stack="local")
        subprocess.run(commit, cwd=stacks.parent, check=True)
        found = needed_approvals(Session("local"), "HEAD^" if name == "speech" else "")
        assert [each.partition(":")[0] for each in found] == [str(stacks.parent / f"teams/{name}.yaml")]
    with pytest.raises(InputError, match="--since"):
        needed_approvals(Session("local"), "none")


@pytest.mark.parametrize(("text", "name"), [("{name: vision}\n", "vision"), ("name: vision\n", "vison")])
def test_what_cannot_be_changed_is_refused_and_left(stacks: Path, text: str, name: str) -> None:
    file = stacks.parent / "teams" / "vision.yaml"
    file.write_text(text)
    with pytest.raises(InputError):
        close(name, "local")
    with pytest.raises(InputError, match="--until"):
        renew("vision", datetime(2020, 1, 1), "local")
    assert file.read_text() == text


def test_a_stack_without_a_folder_says_how_to_begin(stacks: Path) -> None:
    stacks.write_text(stacks.read_text().replace("    teams_from: teams\n", ""))
    with pytest.raises(InputError, match="add `teams_from: teams` to it"):
        close("vision", "local")
