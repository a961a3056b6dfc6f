"""`hold_failed.sh`, which keeps a failed job's pod running for inspection, run as a container runs it."""

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

from infra.platform.jobs.runtimes import EX_HELD
from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS, wait_for

EXITS_ON_NOTICE = "trap 'exit 75' TERM; touch started; while :; do sleep 0.02; done"


@pytest.fixture
def termination_log(tmp_path: Path) -> Path:
    return tmp_path / "termination-log"


def held(termination_log: Path, seconds: int, script: str) -> subprocess.Popen[str]:
    hold = ["/bin/sh", "-c", program("hold_failed.sh"), "hold_failed", str(seconds)]
    variables = {**os.environ, "TERMINATION_LOG": str(termination_log), "TRAINYARD_JOB": "tune"}
    return subprocess.Popen(
        [*hold, "/bin/sh", "-c", script],
        stderr=subprocess.PIPE,
        text=True,
        env=variables,
        cwd=termination_log.parent,
    )


@pytest.mark.parametrize("code", [0, 75])
def test_a_finished_or_preempted_command_is_not_held(termination_log: Path, code: int) -> None:
    process = held(termination_log, 60, f"exit {code}")
    assert process.communicate(timeout=TIMEOUT_SECONDS)[1] == ""
    assert process.returncode == code


def test_a_failure_is_held_for_its_time_and_then_the_job_has_failed(termination_log: Path) -> None:
    started = time.monotonic()
    process = held(termination_log, 1, "exit 3")
    _, errors = process.communicate(timeout=TIMEOUT_SECONDS)
    assert time.monotonic() - started >= 1
    assert process.returncode == EX_HELD
    assert "failed with exit code 3; this pod is held for 1 s: trainyard shell tune" in errors
    assert termination_log.read_text() == "failed with exit code 3; held for 1 s\n"


def test_a_message_of_the_command_is_kept(termination_log: Path) -> None:
    script = f"echo out of data >{termination_log}; exit 3"
    held(termination_log, 1, script).communicate(timeout=TIMEOUT_SECONDS)
    assert termination_log.read_text() == "out of data\n"


def test_a_preemption_notice_reaches_the_command_and_its_exit_code_is_the_pods(termination_log: Path) -> None:
    process = held(termination_log, 60, EXITS_ON_NOTICE)
    wait_for((termination_log.parent / "started").exists)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 75


def test_a_held_pod_ends_on_a_preemption_notice(termination_log: Path) -> None:
    process = held(termination_log, 60, "exit 4")
    assert process.stderr is not None
    process.stderr.readline()
    process.stderr.readline()
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=TIMEOUT_SECONDS)
    assert process.returncode == 4
    assert not termination_log.exists()
