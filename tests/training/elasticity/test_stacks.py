"""Stacks of all threads on a signal, as `trainyard stacks` requests them in a pod."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from infra.platform.programs import program
from tests.processes import TIMEOUT_SECONDS

RANK = """
import signal, sys, time
from trainyard_train.elasticity.stacks import answer_with_stacks
{before}
answer_with_stacks()
def waits_for_a_peer():
    print("ready", flush=True)
    time.sleep(600)
waits_for_a_peer()
"""


def started(folder: Path, rank: int, before: str = "") -> subprocess.Popen[str]:
    environment = {**os.environ, "TMPDIR": str(folder), "RANK": str(rank)}
    process = subprocess.Popen(
        [sys.executable, "-c", RANK.format(before=before)],
        env=environment,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    return process


def stacks(folder: Path) -> str:
    within = "time.monotonic() + 5"
    text = program("print_stacks.py")
    assert within in text
    command = [sys.executable, "-c", text.replace(within, f"time.monotonic() + {TIMEOUT_SECONDS}")]
    environment = {**os.environ, "TMPDIR": str(folder)}
    done = subprocess.run(
        command, env=environment, capture_output=True, text=True, check=True, timeout=TIMEOUT_SECONDS
    )
    return done.stdout


def test_every_rank_writes_its_stacks_and_continues(tmp_path: Path) -> None:
    ranks = [started(tmp_path, rank) for rank in (1, 0)]
    try:
        for _ in range(2):  # the second answer is not the first one's
            output = stacks(tmp_path)
            assert [line.split(",")[0] for line in output.splitlines() if line[:4] == "rank"] == [
                "rank 0",
                "rank 1",
            ]
            assert output.count("in waits_for_a_peer") == 2
        assert [rank.poll() for rank in ranks] == [None, None]
    finally:
        for rank in ranks:
            rank.kill()
            rank.communicate()
    assert "no rank here answers" in stacks(tmp_path), "their files stay, their processes do not"


def test_a_program_keeps_its_handler(tmp_path: Path) -> None:
    own = "signal.signal(signal.SIGUSR2, lambda *_: sys.exit(7))"
    rank = started(tmp_path, 0, before=own)
    assert "no rank here answers" in stacks(tmp_path)
    assert rank.poll() is None
    rank.send_signal(signal.SIGUSR2)
    assert rank.wait(TIMEOUT_SECONDS) == 7
    rank.communicate()
