"""A soak that was stopped continues where it was; after a change of the code, all tests run again."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.soak import SoakNotes

LONG = """
import pytest
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_kills(seed):
    assert seed != {fails}
"""
PROGRAM = """
import pathlib, sys, pytest, tests.soak
notes, folder = map(pathlib.Path, sys.argv[1:])
tests.soak.NOTES = tests.soak.SoakNotes(notes, folder)
sys.exit(pytest.main(["-p", "tests.soak", "-v", "-c", "/dev/null", "--rootdir", sys.argv[2], sys.argv[2]]))
"""


def soak(folder: Path, fails: int) -> str:
    (folder / "tests").mkdir(exist_ok=True)
    (folder / "tests" / "test_long.py").write_text(LONG.format(fails=fails))
    command = [sys.executable, "-c", PROGRAM, str(folder / "soak.txt"), str(folder / "tests")]
    environment = os.environ | {"PYTHONPATH": str(REPOSITORY), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, check=False
    ).stdout


def test_tests_that_have_passed_do_not_run_again(tmp_path: Path) -> None:
    assert "1 failed, 2 passed" in soak(tmp_path, fails=2)
    assert "1 failed, 2 deselected" in soak(tmp_path, fails=2)


@pytest.mark.parametrize("name", ["training/a.py", "stacks/Pulumi.a.yaml", "tests/cases/racks/gcp.yaml"])
def test_once_the_code_or_a_stack_has_changed_all_run_again(name: str, tmp_path: Path) -> None:
    file = tmp_path / name
    file.parent.mkdir(parents=True)
    file.write_text("1")
    before = SoakNotes(tmp_path / "soak.txt", tmp_path)
    for name in ("one[3]", "two"):
        before.add(name)
    assert SoakNotes(before.file, tmp_path).passed() == {"one[3]", "two"}
    file.write_text("2")
    after = SoakNotes(before.file, tmp_path)
    assert after.passed() == set()
    after.add("two")
    assert SoakNotes(before.file, tmp_path).passed() == {"two"}
