"""`trainyard rehearse` on the real engine: the whole life of a stack, nothing real behind it."""

from __future__ import annotations

import subprocess

import pytest

from local.paths import Paths

pytestmark = pytest.mark.e2e


def test_the_local_stack_is_rehearsed_with_the_policies_and_leaves_nothing() -> None:
    command = [str(Paths.from_environment().venv / "bin" / "trainyard"), "rehearse", "-s", "local"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    phases = [line.split()[0] for line in done.stdout.splitlines() if "create" in line or "same" in line]
    assert phases == ["preview", "up", "up", "refresh"], done.stdout
    assert "destroy" in done.stdout
