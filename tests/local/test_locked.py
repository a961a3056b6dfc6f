"""Entries of locks, as pip and uv read them."""

import subprocess
import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from local.locked import entries

FILE = Path(__file__).with_name("lock.txt")
LOCK = FILE.read_text()


def test_a_package_comes_with_all_that_it_needs_and_nothing_that_needs_it() -> None:
    assert entries(FILE, "boto3") == LOCK[: LOCK.index("colorama")] + LOCK[LOCK.index("s3transfer==") :]
    assert entries(FILE, "colorama") == LOCK[LOCK.index("colorama") : LOCK.index("moto==")]


def test_a_package_that_is_not_locked_is_refused() -> None:
    with pytest.raises(LookupError, match="has no entry of requests; `make lock` writes it"):
        entries(FILE, "requests")


def test_it_runs_with_pythons_own_library_alone() -> None:
    command = [sys.executable, "-I", "-S", str(REPOSITORY / "local/locked.py"), str(FILE), "moto"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    assert done.stdout == LOCK[: LOCK.index("colorama")] + LOCK[LOCK.index("moto==") :]
