"""Files of a run folder: replaced atomically, and errors with the next step."""

import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from infra.errors import TrainyardError
from trainyard.jobs.run_folder import read_from, replace

NAME = "learning-curve.png"


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    made = tmp_path / "research" / "job" / "run"
    made.mkdir(parents=True)
    return made


@contextmanager
def file_size_limit(size: int) -> Iterator[None]:
    """Make the kernel refuse larger writes, as on a full filesystem."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_a_failed_write_changes_nothing_and_its_message_blames_no_team(run_dir: Path) -> None:
    replace(run_dir, NAME, b"before")
    with file_size_limit(10), pytest.raises(TrainyardError, match="File too large") as raised:
        replace(run_dir, NAME, b"x" * 4096)
    assert "free space" in raised.value.problems[0].fix
    assert "team" not in raised.value.problems[0].fix
    assert [file.name for file in run_dir.iterdir()] == [NAME]
    assert read_from(run_dir, NAME, 0) == b"before"


def test_a_temporary_file_of_a_killed_process_with_the_same_id_is_replaced(run_dir: Path) -> None:
    (run_dir / f".{NAME}.{os.getpid()}").touch()
    replace(run_dir, NAME, b"content")
    assert read_from(run_dir, NAME, 0) == b"content"


@pytest.mark.parametrize("kind", ["folder", "link", "FIFO"])
def test_the_team_is_asked_to_remove_what_is_not_a_regular_file(run_dir: Path, kind: str) -> None:
    make = {"folder": os.mkdir, "link": lambda path: path.symlink_to("/etc/passwd"), "FIFO": os.mkfifo}
    make[kind](run_dir / NAME)
    with pytest.raises(TrainyardError, match="delete what a job of team research"):
        read_from(run_dir, NAME, 0)
