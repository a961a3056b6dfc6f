"""The program that keeps a failed job's pod, run as a container would run it."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from infra.platform.programs import program
from infra.platform.runtimes import EX_HELD
from tests.processes import TIMEOUT_SECONDS, wait_for

LEAVES = "trap 'exit 75' TERM; touch started; while :; do sleep 0.02; done"


@pytest.fixture
def output(tmp_path: Path) -> Path:
    return tmp_path / "termination-log"


def held(output: Path, seconds: int, script: str) -> subprocess.Popen[str]:
    hold = ["/bin/sh", "-c", program("hold_failed.sh"), "hold_failed", str(seconds)]
    variables = {**os.environ, "TERMINATION_LOG": str(output), "TRAINYARD_JOB": "tune"}
    return subprocess.Popen(
        [*hold, "/bin/sh", "-c", script], stderr=subprocess.PIPE, text=True, env=variables, cwd=output.parent
    )


@pytest.mark.parametrize("code", [0, 75])
def test_what_is_done_or_was_preempted_is_not_held(output: Path, code: int) -> None:
    process = held(output, 60, f"exit {code}")
    assert process.communicate(timeout=TIMEOUT_SECONDS)[1] == ""
    assert process.returncode == code


def test_a_failure_is_held_for_its_time_and_then_the_job_has_failed(output: Path) -> None:
    started = time.monotonic()
    process = held(output, 1, "exit 3")
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert time.monotonic() - started >= 1
    assert process.returncode == EX_HELD
    assert "failed with exit code 3; this pod is held for 1 s: trainyard shell tune" in errors
    assert output.read_text() == "failed with exit code 3; held for 1 s\n"


def test_what_a_command_has_reported_itself_remains(output: Path) -> None:
    held(output, 1, f"echo out of data >{output}; exit 3").communicate(timeout=TIMEOUT_SECONDS)
    assert output.read_text() == "out of data\n"


def test_a_preemption_notice_reaches_the_command_and_its_exit_code_is_the_pods(output: Path) -> None:
    process = held(output, 60, LEAVES)
    wait_for((output.parent / "started").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 75


def test_a_held_pod_ends_on_a_preemption_notice(output: Path) -> None:
    process = held(output, 60, "exit 4")
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 4
    assert not output.exists()
