"""Tiers of tests (`tests/tiers.py`): markers read from a file's text, and which files are imported."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.tiers import KNOWN, TIERS, is_wanted, markers_of


def sets(*groups: str) -> set[frozenset[str]]:
    return {frozenset(group.split("+")) for group in groups}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A folder of tests with packages of two tiers, of which the slow one imports a missing module."""
    (tmp_path / "conftest.py").write_text(
        "from tests.tiers import pytest_ignore_collect, pytest_itemcollected\n"
    )
    for package, text in (("fast", ""), ("slow", "import pytest\n\npytestmark = pytest.mark.training\n")):
        (tmp_path / package).mkdir()
        (tmp_path / package / "__init__.py").write_text(text)
        (tmp_path / package / f"test_{package}.py").write_text("def test_it() -> None: ...\n")
    (tmp_path / "slow" / "conftest.py").write_text("import there_is_no_such_sdk\n")
    return tmp_path


def collected(tree: Path, *arguments: str, path: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "pytest", "--collect-only", "-p", "no:cacheprovider", "-c"]
    config = REPOSITORY / "pyproject.toml"
    return subprocess.run(
        [*command, str(config), f"--rootdir={tree}", str(tree / path), *arguments],
        cwd=REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", sets("training")),
        ("@pytest.mark.parametrize('a', [1])\ndef test(a): ...", sets("training")),
        ("@pytest.mark.ranks\ndef test(): ...", sets("training", "ranks")),
        ("pytestmark = pytest.mark.ranks\nX = 1", sets("ranks")),
        ("pytestmark = [\n    pytest.mark.ranks,\n    pytest.mark.timeout(1),\n]\n\nX = 1", sets("ranks")),
        ("pytestmark = pytest.mark.soak\n", sets("training+soak")),
        ("@pytest.mark.soak\ndef test(): ...", sets("training", "training+soak")),
        (
            "pytestmark = pytest.mark.ranks\n\n@pytest.mark.soak\ndef test(): ...",
            sets("ranks", "ranks+soak"),
        ),
    ],
    ids=[
        "none",
        "another marker",
        "of a test",
        "of the file",
        "of the file, among others",
        "a long file",
        "a long test",
        "a file of a tier with a long test",
    ],
)
def test_markers_are_read_from_a_files_text(tree: Path, text: str, expected: set[frozenset[str]]) -> None:
    file = tree / "slow" / "test_other.py"
    file.write_text(text)
    assert markers_of(file) == expected


def test_files_without_a_test_of_the_tier_are_not_imported(tree: Path) -> None:
    found = collected(tree, "-m", "unit and not soak")
    assert found.returncode == 0, found.stdout
    assert "test_fast.py::test_it" in found.stdout
    assert "slow" not in found.stdout
    found = collected(tree, "-m", "training")
    assert "there_is_no_such_sdk" in found.stdout + found.stderr


def test_a_file_that_is_named_is_imported_whatever_its_tier(tree: Path) -> None:
    (tree / "slow" / "conftest.py").unlink()
    found = collected(tree, "-m", "unit", path="slow/test_slow.py")
    assert "1 deselected" in found.stdout


def test_a_marker_that_the_text_does_not_show_is_refused(tree: Path) -> None:
    hidden = "import pytest\n\nmark = pytest.mark\n\n@mark.engine\ndef test_it() -> None: ...\n"
    (tree / "fast" / "test_hidden.py").write_text(hidden)
    found = collected(tree)
    assert "test_hidden.py::test_it has the markers engine, its file unit" in found.stdout + found.stderr


def test_expressions_select_as_pytest_does() -> None:
    assert is_wanted(frozenset({"unit"}), "unit and not soak")
    assert not is_wanted(frozenset({"unit", "soak"}), "unit and not soak")
    assert is_wanted(frozenset({"engine"}), "(cluster or engine) and not soak")


def test_make_runs_every_tier() -> None:
    would = subprocess.run(
        ["make", "--dry-run", "test"], cwd=REPOSITORY, check=True, capture_output=True, text=True
    )
    assert {*re.findall(r"-m tests\.proof (\w+)", would.stdout)} - {"end"} == TIERS
    options = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["tool"]["pytest"]["ini_options"]
    assert {marker.partition(":")[0] for marker in options["markers"]} == KNOWN
