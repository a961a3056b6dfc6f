"""Teams in files of their own (`teams_from`): positions of their problems, queues, expiry, approvals."""

from datetime import timedelta
from pathlib import Path

import pytest

from infra.errors import InputError
from infra.stackfile import Stack, load, parse
from infra.stackfile.self_service import approvals, expiry_warnings, today
from infra.stackfile.source import read
from tests.infra.plan import stack_file
from tests.tables import table

FORTIETH = "name: vision\nowner: ada@example.com\nmembers: [vision]\nquota: {spot: 1}\nexpires: 2999-12-31\n"


def stack(folder: Path, *, keys: str = "", **files: str) -> Path:
    """Write the embedded cluster's stack with a folder of teams; `NAME` is the file NAME.yaml."""
    (folder / "teams").mkdir()
    for name, text in files.items():
        (folder / "teams" / f"{name}.yaml").write_text(text)
    file, above = folder / "Pulumi.local.yaml", "  trainyard:stack:\n"
    file.write_text(stack_file("local").read_text().replace(above, f"{above}    teams_from: teams\n{keys}"))
    return file


def test_a_team_is_one_file_and_its_quota_a_queue_in_the_cohort_of_the_shared_one(tmp_path: Path) -> None:
    assert len(FORTIETH.splitlines()) <= 12
    found = load(stack(tmp_path, vision=FORTIETH))
    assert [each.name for each in found.teams] == ["research", "platform", "vision"]
    shared, own = found.queues
    assert (own.name, own.cohort, found.teams[-1].queue) == ("vision", shared.cohort, "vision")
    assert [flavor.quota for flavor in own.flavors] == [1, 0]
    assert [flavor.quota for flavor in shared.flavors] == [1, 2]
    assert [each.queue for each in found.teams[:2]] == ["gpu", "gpu"]


def test_what_was_read_can_be_read_again(tmp_path: Path) -> None:
    found = load(stack(tmp_path, vision=FORTIETH, speech=FORTIETH.replace("vision", "speech")))
    assert [flavor.quota for flavor in found.queues[0].flavors] == [0, 2]
    assert parse(found.model_dump(mode="json", by_alias=True, exclude_none=True)) == found


def test_all_problems_of_all_files_come_at_once_with_their_lines(tmp_path: Path) -> None:
    file = stack(
        tmp_path,
        a="name: b\nownr: ada\nexpires: 2027-06-31\n",
        c="name: c\nqueue: gpu\nquota: {spot: 100}\nname: c\n",
        d="name: [d\n",
    )
    (tmp_path / "teams" / "platform.yml").write_text("name: platform\n")
    with pytest.raises(InputError) as caught:
        load(file)
    found = {each.location.removeprefix(f"{tmp_path}/"): each.got for each in caught.value.problems}
    assert found == {
        "teams/a.yaml:1:7": "'b'",
        "teams/a.yaml:2:7": "'ada'",
        "teams/a.yaml:3:10": "'2027-06-31'",
        "teams/c.yaml:3:1": "100 (100 over all queues)",
        "teams/c.yaml:4:1": "a duplicate key",
        "teams/d.yaml:2:1": "expected ',' or ']', but got '<stream end>'",
        "teams/platform.yml:1:7": "'platform'",
    }


def test_a_name_that_two_teams_have_is_refused_at_both(tmp_path: Path) -> None:
    with pytest.raises(InputError) as caught:
        load(stack(tmp_path, research="name: research\n"))
    found = [each.location.removeprefix(f"{tmp_path}/") for each in caught.value.problems]
    assert found == ["Pulumi.local.yaml:15:16", "teams/research.yaml:1:7"]


@pytest.mark.parametrize(
    ("written", "allowed"), [("none", "a folder beside the stack file: "), ("../teams", "lower-case")]
)
def test_a_folder_that_is_none_of_the_stacks_is_refused(written: str, allowed: str, tmp_path: Path) -> None:
    file = stack(tmp_path)
    file.write_text(file.read_text().replace("teams_from: teams", f"teams_from: {written}"))
    with pytest.raises(InputError) as caught:
        load(file)
    (problem,) = caught.value.problems
    assert (problem.path, problem.location) == ("teams_from", f"{file}:5:17")
    assert problem.allowed.startswith(allowed)


def read_with(folder: Path, **days: int) -> Stack:
    """Return a stack whose team `vision` has these keys, in days from today."""
    lines = "".join(f"{key}: {today() + timedelta(number)}\n" for key, number in days.items())
    return load(stack(folder, vision=FORTIETH.replace("expires: 2999-12-31\n", lines)))


@pytest.mark.parametrize(("days", "said", "is_held", "quota"), table(__file__))
def test_expiry_warns_then_admits_no_job_and_a_closed_team_has_no_quota(
    days: dict[str, int], said: str, is_held: bool, quota: int, tmp_path: Path
) -> None:
    found = read_with(tmp_path, **days)
    assert [said in each for each in expiry_warnings(found)] == ([True] if said else [])
    assert found.teams[-1].is_held(today()) is is_held
    assert found.queues[-1].flavors[0].quota == quota


@pytest.mark.parametrize(
    ("limits", "text", "said"),
    [
        ("max_quota: 1, max_days: 400000", FORTIETH, []),
        ("max_quota: 0, max_days: 9", f"{FORTIETH}closed: 2026-01-01\n", []),
        ("max_quota: 0", FORTIETH, ["vision.yaml:4:1: team vision: 1 accelerators, above 0: needs the"]),
        ("max_days: 9", FORTIETH.replace("expires: 2999-12-31\n", ""), ["no day on which it ex"]),
        ("max_days: 9", FORTIETH, ["days until it expires, above 9"]),
    ],
)  # fmt: skip
def test_a_team_above_a_limit_names_who_approves(
    limits: str, text: str, said: list[str], tmp_path: Path
) -> None:
    keys = f"    self_service: {{approvers: ['@org/p'], {limits}}}\n"
    file = stack(tmp_path, keys=keys, vision=text)
    found = list(approvals(load(file), read(file)[1]))
    assert len(found) == len(said)
    assert all(part in each for part, each in zip(said, found, strict=True))
