"""What passed in a preview counts for the update that follows it, and for no other."""

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


def test_what_was_written_is_read(file: Path) -> None:
    previews.write(file, PASSED)
    assert previews.read(file) == PASSED
    previews.forget(file)
    assert previews.read(file) == frozenset()


def test_stacks_do_not_share_it(tmp_path: Path) -> None:
    environment = {"PULUMI_HOME": str(tmp_path)}
    names = [("p", "s"), ("p", "t"), ("q", "s")]
    assert len({previews.file_of(project, stack, environment) for project, stack in names}) == 3


def test_an_old_preview_counts_no_more(file: Path) -> None:
    previews.write(file, PASSED)
    long_ago = datetime.now(UTC) - timedelta(hours=previews.LONGEST_HOURS, seconds=1)
    data = json.loads(file.read_text())
    file.write_text(json.dumps({**data, "previewed": long_ago.isoformat()}))
    assert previews.read(file) == frozenset()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", '{"previewed": "soon", "passed": []}', '{"passed": [["a"]]}']
)
def test_a_damaged_file_lets_nothing_pass(file: Path, text: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    assert previews.read(file) == frozenset()


def test_a_folder_that_cannot_be_written_stops_no_preview(tmp_path: Path) -> None:
    (tmp_path / "trainyard").write_text("in the way")
    previews.write(previews.file_of("p", "s", {"PULUMI_HOME": str(tmp_path)}), PASSED)
