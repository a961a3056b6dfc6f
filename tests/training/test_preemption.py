"""A notice is heard whatever the main thread does."""

from __future__ import annotations

import signal
import subprocess
import sys
import time

import pytest

PROGRAM = """
import sys, time
from training.preemption import Notice
notice = Notice(leave_seconds=float(sys.argv[2]))
notice.watch()
if sys.argv[1] != "starting":
    notice.begin_steps()
print("ready", flush=True)
if sys.argv[1] == "stepping":
    while not notice.requested:
        notice.sleep(10)
    sys.exit(0)
time.sleep(60)  # as in a collective that never returns
"""


def tell(mode: str, *signals: signal.Signals, leave_seconds: float = 30) -> tuple[int, str, float]:
    """Run the program, send it signals, and return its exit code, its words and the seconds it took."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, str(leave_seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    begin = time.monotonic()
    for number in signals:
        process.send_signal(number)
        time.sleep(0.1)
    _, words = process.communicate(timeout=20)
    return process.returncode, words, time.monotonic() - begin


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_the_first_step_it_leaves_at_once_to_be_run_again(number: signal.Signals) -> None:
    code, words, _ = tell("starting", number)
    assert code == 75
    assert f"{number.name} before the first step" in words


def test_between_steps_the_loop_learns_of_it_at_once() -> None:
    code, words, seconds = tell("stepping", signal.SIGTERM)
    assert code == 0
    assert "saving at the end of this step" in words
    assert seconds < 5


def test_a_main_thread_that_hangs_does_not_outlive_the_grace() -> None:
    code, words, seconds = tell("hanging", signal.SIGTERM, leave_seconds=0.5)
    assert code == 1
    assert "no checkpoint within 0.5 s" in words
    assert "time.sleep" in words or "Current thread" in words or "Thread" in words
    assert seconds < 5


def test_told_twice_it_leaves_at_once() -> None:
    code, words, _ = tell("hanging", signal.SIGINT, signal.SIGINT)
    assert code == 1
    assert "told twice" in words
