"""A notice is heard whatever the main thread does."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

from tests.processes import PATIENCE_SECONDS

PROGRAM = """
import sys, time
from trainyard_train.elasticity.preemption import Notice
notice = Notice(leave_seconds=float(sys.argv[2]))
notice.watch()
if sys.argv[1] != "starting":
    notice.begin_steps()
print("ready", flush=True)
if sys.argv[1] == "stepping":
    while not notice.requested:
        notice.sleep(600)
    sys.exit(0)
time.sleep(600)  # as in a collective that never returns
"""


def tell(mode: str, *signals: signal.Signals, leave_seconds: float = 600) -> tuple[int, str]:
    """Run the program, send it signals, each once the one before is heard; its exit code and its words.

    It ends in time only by what it is told: all that it waits for takes longer.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, str(leave_seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    heard = ""
    for number in signals:
        process.send_signal(number)
        heard += process.stderr.readline()
    _, words = process.communicate(timeout=PATIENCE_SECONDS)
    return process.returncode, heard + words


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_the_first_step_it_leaves_at_once_to_be_run_again(number: signal.Signals) -> None:
    code, words = tell("starting", number)
    assert code == 75
    assert f"{number.name} before the first step" in words


def test_between_steps_the_loop_learns_of_it_at_once() -> None:
    code, words = tell("stepping", signal.SIGTERM)
    assert code == 0
    assert "saving at the end of this step" in words


def test_a_main_thread_that_hangs_does_not_outlive_the_grace() -> None:
    code, words = tell("hanging", signal.SIGTERM, leave_seconds=0.5)
    assert code == 1
    assert "no checkpoint within 0.5 s" in words
    assert "time.sleep" in words or "Current thread" in words or "Thread" in words


def test_told_twice_it_leaves_at_once() -> None:
    code, words = tell("hanging", signal.SIGINT, signal.SIGINT)
    assert code == 1
    assert "told twice" in words
