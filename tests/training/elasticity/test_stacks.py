"""Stacks of all threads on a signal, as `trainyard job traces` requests them in a pod."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS

RANK = """
import os, signal, sys, time
from trainyard_train.elasticity.stacks import answer_with_stacks
{before}
answer_with_stacks()
{after}
def waits_for_a_peer():
    os.write(1, b"ready\\n")
    time.sleep(600)
waits_for_a_peer()
"""


def started(rank: int, temporary: Path, before: str = "", after: str = "") -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", RANK.format(before=before, after=after)],
        env={**os.environ, "TMPDIR": str(temporary), "RANK": str(rank)},
        stdout=subprocess.PIPE,
        text=True,
    )
    await_ready(process)
    return process


def await_ready(process: subprocess.Popen[str]) -> None:
    assert process.stdout
    assert process.stdout.readline() == "ready\n"


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    """Its processes, a link for each to the host's `/proc`."""
    folder = tmp_path / "pod"
    folder.mkdir()
    return folder


def stacks(pod: Path, *processes: int) -> str:
    """Output of the program in a pod to which these processes are added."""
    for process in processes:
        (pod / str(process)).symlink_to(f"/proc/{process}")
    text = program("print_stacks.py")
    for changed, instead in {
        'pathlib.Path("/proc")': f"pathlib.Path({str(pod)!r})",
        "time.monotonic() + 5": f"time.monotonic() + {TIMEOUT_SECONDS}",
    }.items():
        assert changed in text
        text = text.replace(changed, instead)
    command = [sys.executable, "-c", text]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS)
    return done.stdout


def answers(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("rank ")]


def test_every_rank_writes_its_stacks_and_continues(tmp_path: Path, pod: Path) -> None:
    ranks = [started(rank, tmp_path) for rank in (1, 0)]
    numbers = [rank.pid for rank in ranks]
    try:
        output = stacks(pod, *numbers)
        for _ in range(2):  # the second answer is not the first one's
            assert answers(output) == [f"rank 0, process {numbers[1]}", f"rank 1, process {numbers[0]}"]
            assert output.count("in waits_for_a_peer") == 2
            output = stacks(pod)
        assert [rank.poll() for rank in ranks] == [None, None]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert "no rank here answers" in stacks(pod)
    assert list(tmp_path.iterdir()) == [pod], "a killed rank leaves no file"


@pytest.mark.parametrize(("call", "asked"), [("", 1), ("or answer_with_stacks()", 2)])
def test_a_fork_is_asked_once_it_answers_itself(tmp_path: Path, pod: Path, call: str, asked: int) -> None:
    """Its stacks in the inherited file would be taken for those of the rank."""
    rank = started(0, tmp_path, after=f"os.fork() {call}")
    await_ready(rank)
    (fork,) = psutil.Process(rank.pid).children()
    try:
        expected = [f"rank 0, process {number}" for number in sorted((rank.pid, fork.pid)[:asked])]
        assert answers(stacks(pod, rank.pid, fork.pid)) == expected
    finally:
        fork.kill()
        rank.kill()
        rank.communicate()


def test_a_program_keeps_its_handler(tmp_path: Path, pod: Path) -> None:
    own = "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))"
    rank = started(0, tmp_path, before=own)
    assert "no rank here answers" in stacks(pod, rank.pid)
    assert rank.poll() is None
    rank.send_signal(signal.SIGUSR2)
    assert rank.wait(TIMEOUT_SECONDS) == 7
    rank.communicate()
