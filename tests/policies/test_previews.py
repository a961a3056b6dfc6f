"""The record of resources that passed a preview, which only the update after it uses."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from policies import previews

PASSED = frozenset({("security-bucket-companions", "urn:pulumi:s::p::aws:s3/bucket:Bucket::data")})


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return previews.file_of("p", "s", {"PULUMI_HOME": str(tmp_path)})


def test_a_written_record_is_read(file: Path) -> None:
    previews.write(file, PASSED)
    assert previews.read(file) == PASSED
    previews.forget(file)
    assert previews.read(file) == frozenset()


def test_stacks_have_separate_records(tmp_path: Path) -> None:
    environment = {"PULUMI_HOME": str(tmp_path)}
    names = [("p", "s"), ("p", "t"), ("q", "s")]
    assert len({previews.file_of(project, stack, environment) for project, stack in names}) == 3


def test_an_old_preview_does_not_count(file: Path) -> None:
    previews.write(file, PASSED)
    long_ago = datetime.now(UTC) - timedelta(hours=previews.LONGEST_HOURS, seconds=1)
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "previewed": long_ago.isoformat()}))
    assert previews.read(file) == frozenset()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"previewed": "soon", "passed": []}', '{"passed": [["a"]]}']
)
def test_a_damaged_file_counts_as_empty(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert previews.read(file) == frozenset()


def test_a_folder_that_cannot_be_written_does_not_fail_a_preview(tmp_path: Path) -> None:
    (tmp_path / "trainyard").write_text("in the way")
    previews.write(previews.file_of("p", "s", {"PULUMI_HOME": str(tmp_path)}), PASSED)
