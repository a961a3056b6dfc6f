"""Files of a run are replaced whole, and what goes wrong has the advice that helps."""

from __future__ import annotations

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.errors import TrainyardError
from trainyard.run_folder import read_from, replace

NAME = "learning-curve.png"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    made = tmp_path / "research" / "job" / "run"
    made.mkdir(parents=True)
    return made


@contextmanager
def files_of_at_most(size: int) -> Iterator[None]:
    """Let a write fail by the kernel, as on a full filesystem."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_write_that_fails_leaves_the_folder_as_it_was_and_blames_no_team(run_dir: Path) -> None:
    replace(run_dir, NAME, b"before")
    with files_of_at_most(10), pytest.raises(TrainyardError, match="File too large") as raised:
        replace(run_dir, NAME, b"x" * 4096)
    assert "free space" in raised.value.problems[0].fix
    assert "team" not in raised.value.problems[0].fix
    assert [file.name for file in run_dir.iterdir()] == [NAME]
    assert read_from(run_dir, NAME, 0) == b"before"


def test_what_a_killed_process_of_the_same_id_left_is_not_in_the_way(run_dir: Path) -> None:
    (run_dir / f".{NAME}.{os.getpid()}").touch()
    replace(run_dir, NAME, b"content")
    assert read_from(run_dir, NAME, 0) == b"content"


@pytest.mark.parametrize("kind", ["folder", "link", "FIFO"])
def test_what_is_no_file_is_the_teams_to_remove(run_dir: Path, kind: str) -> None:
    make = {"folder": os.mkdir, "link": lambda path: path.symlink_to("/etc/passwd"), "FIFO": os.mkfifo}
    make[kind](run_dir / NAME)
    with pytest.raises(TrainyardError, match="remove what a job of team research"):
        read_from(run_dir, NAME, 0)
