"""The version: the same in all files, and written to all of them by a release."""

import shutil
from datetime import date
from pathlib import Path

import pytest

from infra.common.artifacts import ROOT
from tests import versions
from trainyard.component.schema import package_schema

PRESENT = package_schema()["version"]


def test_one_version_is_stated_everywhere() -> None:
    """A program's SDK installs the tag that the schema names, and the pages' commands use the same."""
    found = versions.stated()
    assert {file: named for file, named in found.items() if named - {PRESENT}} == {}
    assert all(found[file] for file in [*versions.STATED, "docs/package.md"])


def test_the_changelogs_last_release_is_the_present_version() -> None:
    text = (ROOT / versions.CHANGELOG).read_text()
    assert versions.UNRELEASED in text
    assert versions.released(text)[:1] in ([], [PRESENT])


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    for file in [*(file for file, _ in versions.files()), ROOT / versions.CHANGELOG]:
        target = tmp_path / file.relative_to(ROOT)
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(file, target)
    return tmp_path


def test_a_release_states_its_version_everywhere_and_in_the_changelog(copy: Path) -> None:
    on = date(2027, 1, 31)
    changed = versions.write("98.7.6", on, copy)
    found = versions.stated(copy)
    assert set().union(*found.values()) == {"98.7.6"}
    assert {str(each.relative_to(copy)) for each in changed} == {
        *(file for file, named in found.items() if named),
        versions.CHANGELOG,
    }
    text = (copy / versions.CHANGELOG).read_text()
    assert "## Unreleased\n\n## 98.7.6 - 2027-01-31\n\n### Added\n" in text
    assert "has no change under" in versions.problem("98.7.7", copy)
    (copy / versions.CHANGELOG).write_text(
        text.replace(versions.UNRELEASED, "## Unreleased\n\n- A change.\n")
    )
    assert versions.problem("98.7.7", copy) == ""
    assert "allowed: more than 98.7.6" in versions.problem("98.7.6", copy)


@pytest.mark.parametrize("version", ["v1.0.0", "1.0", "1.0.0-rc1", ""])
def test_a_version_of_another_form_is_refused(version: str) -> None:
    assert "allowed: X.Y.Z" in versions.problem(version)
