"""Entries of locks, as pip and uv read them."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from local.locked import entries

LOCK = """\
botocore==1.44.5 \\
    --hash=sha256:b0
    # via boto3, s3transfer
boto3==1.44.5 \\
    --hash=sha256:a0 \\
    --hash=sha256:a1
    # via moto, trainyard (pyproject.toml)
colorama==0.4.6 ; sys_platform == 'win32' \\
    --hash=sha256:c0
    # via awscli
moto==5.2.5 \\
    --hash=sha256:d0
    # via trainyard (pyproject.toml)
s3transfer==0.19.3 \\
    --hash=sha256:e0
    # via boto3
"""


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    file = tmp_path / "lock.txt"
    file.write_text(LOCK)
    return file


def test_a_package_comes_with_all_that_it_needs_and_nothing_that_needs_it(lock: Path) -> None:
    assert entries(lock, "boto3") == LOCK[: LOCK.index("colorama")] + LOCK[LOCK.index("s3transfer==") :]
    assert entries(lock, "colorama") == LOCK[LOCK.index("colorama") : LOCK.index("moto==")]


def test_a_package_that_is_not_locked_is_refused(lock: Path) -> None:
    with pytest.raises(LookupError, match="has no entry of requests; `make lock` writes it"):
        entries(lock, "requests")


def test_it_runs_with_pythons_own_library_alone(lock: Path) -> None:
    command = [sys.executable, "-I", "-S", str(REPOSITORY / "local/locked.py"), str(lock), "moto"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == LOCK[: LOCK.index("colorama")] + LOCK[LOCK.index("moto==") :]
