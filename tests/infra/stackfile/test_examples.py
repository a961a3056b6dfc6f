"""The job files of examples/ are valid, and their programs short."""

from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from infra.stackfile import load_job

FILES = sorted((REPOSITORY / "examples").glob("*/job.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.parent.name)
def test_a_job_file_is_valid_and_its_program_short(file: Path) -> None:
    assert load_job(file, {"team": "research"}).name == file.parent.name.replace("_", "-")
    program = file.with_name("train.py")
    assert not program.exists() or len(program.read_text().splitlines()) <= 60
