"""A new clone's environment has no cloud's SDK: commands do without, or install it from the lock."""

import shutil
import subprocess
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.processes import capture

PARTS = (
    "catalog", "engine", "infra", "local", "policies", "rehearsal", "requirements", "stacks", "training",
    "trainyard",
)  # fmt: skip
FILES = ("LICENSE", "Pulumi.yaml", "README.md", "pyproject.toml", "trainyard_start.py", "versions.yaml")
PRICES = """
from trainyard.cli import app_of
for stack in ("local", "aws", "gcp", "azure", "coreweave", "onprem"):
    app_of(["cost"])(["cost", "-s", stack], standalone_mode=False)
"""
NOT_COPIED = shutil.ignore_patterns("__pycache__", "*.egg-info")
ENSURE = """
from trainyard.stack.session import Session
session = Session("coreweave")
assert [each.name for each in session.packages.missing()] == ["pulumi-coreweave"]
session.packages.ensure(session.progress)
import pulumi_coreweave
"""


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `make up` makes first of a new clone: an environment with the extra `local`."""
    folder = tmp_path_factory.mktemp("clone")
    for part in PARTS:
        shutil.copytree(REPOSITORY / part, folder / part, ignore=NOT_COPIED)
    for file in FILES:
        shutil.copy(REPOSITORY / file, folder)
    subprocess.run([folder / "local" / "bootstrap.sh", "local"], check=True, capture_output=True, timeout=600)
    return folder


def run(clone: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return capture([clone / ".venv" / "bin" / words[0], *words[1:]], cwd=clone, timeout=600)


def test_a_price_needs_no_sdk(clone: Path) -> None:
    done = run(clone, "python", "-c", PRICES)
    assert done.returncode == 0, done.stderr
    assert "nothing is bought" in done.stdout
    assert "USD/month" in done.stdout


def test_an_sdk_is_installed_from_the_lock_into_the_running_command(clone: Path) -> None:
    done = run(clone, "python", "-c", ENSURE)
    assert done.returncode == 0, done.stderr
    assert "pulumi-coreweave: not installed; installing from requirements/host.txt" in done.stderr
    assert "packages/coreweave: done" in done.stderr
    stamps = {each.name for each in (clone / ".venv").glob(".stamp-*")}
    assert stamps == {".stamp-local", ".stamp-coreweave"}
    again = run(clone, "python", "-c", "import pulumi_coreweave")
    assert again.returncode == 0, again.stderr
