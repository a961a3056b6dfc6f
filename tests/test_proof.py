"""Groups of tests (`tests/proof.py`) that have passed do not run again, and see only what they name."""

import json
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from engine.paths import REPOSITORY
from tests import proof
from tests.processes import capture
from tests.proof import PLAN, Tier
from tests.tiers import TIERS, is_wanted, markers_of

AS_ROOT = pytest.mark.skipif(
    os.geteuid() != 0, reason="hides files in a mount namespace, which root may make"
)
FILES = {
    "named/own.txt": "",
    "named/test_it.py": "def test_it():\n    assert not open('named/own.txt').read()\n",
    "more/test_more.py": "def test_one(): ...\ndef test_two(): ...\n",
    "other/page.md": "",
}
PLANTED = """
import pathlib, subprocess
def test_a_file_that_a_child_program_reads():
    subprocess.run(["cat", "other/page.md"], check=True)
def test_a_link_into_another_folder():
    pathlib.Path(__file__).with_name("link.txt").read_text()
def test_an_absolute_path():
    pathlib.Path("{root}/other/page.md").read_text()
def test_a_conftest_of_another_folder(shared): ...
"""
OUTSIDE = {"conftest.py": "import pytest\n@pytest.fixture\ndef shared(): ...\n", "other/page.md": ""}


def tree(root: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def tier(root: Path, **groups: Any) -> Tier:
    """A tier whose results are beside the folder."""
    options = "-q -p no:cacheprovider -c /dev/null -m= --rootdir=."
    plan = {"always": [], "tiers": {"unit": {"options": options, "groups": groups}}}
    return Tier("unit", root, plan, root.parent / "results")


def counts(root: Path, **groups: Any) -> dict[str, int]:
    """Run groups, by default of the folders `named` and `more`."""
    own = {name: {"tests": [name], "reads": [name]} for name in ("named", "more")}
    run = tier(root, **(groups or own))
    run.run()
    return {key: number for key, number in run.counts.items() if number}


@pytest.fixture(autouse=True)
def apart(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the run of which this is a part out of its records; other plugins take a second to import."""
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    monkeypatch.setattr(proof, "RECORDS", tmp_path / "records")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tree(tmp_path / "tree", FILES)


@AS_ROOT
def test_undeclared_inputs_are_found_however_they_are_read(tmp_path: Path) -> None:
    root = tmp_path / "tree"
    tree(root, OUTSIDE | {"named/test_planted.py": PLANTED.replace("{root}", str(root))})
    (root / "named" / "link.txt").symlink_to("../other/page.md")
    assert counts(root, planted={"tests": ["named"], "reads": []}) == {"failed": 4}
    assert counts(root, planted={"tests": ["named"], "reads": [*OUTSIDE]}) == {"passed": 4}


@AS_ROOT
def test_a_group_that_has_passed_runs_again_only_after_a_change_of_what_it_reads(root: Path) -> None:
    assert counts(root) == {"passed": 3}
    (root / "other" / "page.md").write_text("new")
    assert counts(root) == {"kept": 3}
    (root / "more" / "new.txt").touch()
    assert counts(root) == {"kept": 1, "passed": 2}
    (root / "more" / "new.txt").chmod(0o755)
    assert counts(root) == {"kept": 1, "passed": 2}


@AS_ROOT
def test_a_failure_is_not_kept(root: Path) -> None:
    (root / "named" / "own.txt").write_text("wrong")
    assert counts(root) == {"passed": 2, "failed": 1}
    assert counts(root) == {"kept": 2, "failed": 1}


@AS_ROOT
def test_a_result_is_not_kept_if_what_the_group_reads_changed_meanwhile(root: Path) -> None:
    (root / "more" / "test_more.py").write_text(
        "def test_it():\n    open('more/written.txt', 'a').write('more')\n"
    )
    assert counts(root) == {"passed": 2}
    assert counts(root) == {"kept": 1, "passed": 1}


def test_a_group_that_names_nothing_sees_all_and_always_runs(root: Path) -> None:
    (root / "named" / "test_it.py").write_text("def test_it():\n    open('other/page.md')\n")
    for _ in range(2):
        assert counts(root, all={"tests": ["named", "more"]}) == {"passed": 3}


def test_results_of_who_may_hide_nothing_are_not_kept(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    for _ in range(2):
        assert counts(root) == {"passed": 3}


@pytest.mark.parametrize(
    ("minutes", "kept", "code", "last"),
    [
        (1, 0, 0, "5 passed, 0 failed, 1 skipped"),
        (1, 7, 0, "5 passed, 0 failed, 1 skipped"),
        (9, 0, 0, "5 passed, 1 failed, 1 skipped"),
        (1, 0, 2, "5 passed, 1 failed, 1 skipped"),
    ],
    ids=["passes", "kept tests are counted apart", "above its budget", "a check has failed"],
)
def test_the_sum_of_a_run(
    minutes: float,
    kept: int,
    code: int,
    last: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    counted = {"passed": 5, "skipped": 1, "kept": kept}
    record = {"tier": "unit", "began": time.time() - 60 * minutes, "ended": time.time(), "counts": counted}
    monkeypatch.setattr(proof, "BUDGETS", {"machine_seconds": 1.0, "minutes": {"unit": 2, "all": 60}})
    monkeypatch.setattr(proof, "machine_seconds", lambda: 0.5)
    proof.RECORDS.write_text(json.dumps(record) + "\n")
    assert proof.end(code) == ("0 failed" in last)
    [*_, kept_line, closing] = capsys.readouterr().out.splitlines()
    assert kept_line.startswith(f"{kept} kept")
    assert closing == last


def test_every_test_of_a_tier_is_in_one_group() -> None:
    for name in TIERS:
        groups = Tier(name).groups.values()
        for file in sorted((REPOSITORY / "tests").rglob("test_*.py")):
            if any(is_wanted(markers, f"{name} and not soak") for markers in markers_of(file)):
                within = [
                    each
                    for each in groups
                    for test in each["tests"]
                    if file.is_relative_to(REPOSITORY / test)
                ]
                assert len([each for each in within if "select" not in each]) == (len(within) == 1), file
                assert within, f"no group of {name} has {file}"


def test_every_group_names_what_exists_and_runs_tests_of_its_tier() -> None:
    for name in TIERS:
        for group in Tier(name).groups.values():
            for pattern in proof.flat([group["tests"], group.get("reads", ())]):
                assert [*REPOSITORY.glob(pattern)], pattern
            for test in proof.flat(group["tests"]):
                files = [REPOSITORY / test, *(REPOSITORY / test).rglob("test_*.py")]
                wanted = [markers for file in files if file.is_file() for markers in markers_of(file)]
                assert any(is_wanted(markers, f"{name} and not soak") for markers in wanted), test


LONG = """
import pytest
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills(seed):
    assert seed != {fails}
"""


def soak(folder: Path, fails: int) -> str:
    tree(folder, {"tests/test_long.py": LONG.format(fails=fails)})
    code = (
        "import pathlib, sys, pytest, tests.proof\n"
        "tests.proof.NOTES = pathlib.Path('notes')\n"
        "sys.exit(pytest.main(['-p', 'tests.proof', '-v', '-c', '/dev/null', '--rootdir=tests', 'tests']))\n"
    )
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY)}
    command: Sequence[str] = [sys.executable, "-P", "-c", code]
    return capture(command, cwd=folder, env=environment).stdout


def test_the_tests_of_a_soak_that_have_passed_do_not_run_again(tmp_path: Path) -> None:
    assert "1 failed, 2 passed" in soak(tmp_path, fails=2)
    assert "1 failed, 2 deselected" in soak(tmp_path, fails=2)


def test_a_soak_reads_all_code_and_stacks() -> None:
    assert {"training", "stacks", "tests", "trainyard"} <= {*PLAN["soak"]}
