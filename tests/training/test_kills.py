"""Killed again and again, at moments that a seed chooses: no committed checkpoint is lost, no bit changes.

Every step is saved, so that many of the kills fall into a commit. `make test` runs thirty kills,
`make soak` a thousand; the seed is in the test's name.
"""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.processes import PATIENCE_SECONDS, free_port, kill, wait_for
from tests.training.launch import events, run, settings, start
from training.folder_store import FolderStore

KILLS = 10
"""In one run."""
EVERY_STEP = {
    "steps": 400,  # more than the attempts come to
    "checkpoint.every_steps": 1,
    "checkpoint.keep_last": 2,
    "model.dropout": 0.2,
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(2, settings(tmp_path_factory.mktemp("undisturbed"), **EVERY_STEP))


def in_the_making(run_dir: Path, attempt: int) -> bool:
    return any(line["attempt"] == attempt for line in events(run_dir, "step"))


@pytest.mark.parametrize(
    "seed",
    [
        *(pytest.param(seed, marks=pytest.mark.e2e) for seed in range(3)),
        *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(3, 103)),
    ],
)
def test_kills_at_random_moments_lose_no_committed_checkpoint_and_no_bit(
    tmp_path: Path, undisturbed: str, seed: int
) -> None:
    chance = random.Random(seed)
    store = FolderStore(tmp_path / "checkpoints")
    for attempt in range(1, KILLS + 1):
        ranks = start(2, settings(tmp_path, pace_seconds=0.02, **EVERY_STEP))
        ranks.until(partial(in_the_making, tmp_path, attempt))
        time.sleep(chance.random() * 0.2)
        promised = max((line["step"] for line in events(tmp_path, "checkpoint")), default=0)
        for rank in chance.choice([[0], [1], [0, 1]]):
            ranks.send(rank, signal.SIGKILL)
        assert {code for code, _ in ranks.wait()} <= {-9, 76, 0}
        found = store.newest(lambda step, reason: pytest.fail(f"step {step}: {reason}"))
        assert (found.manifest.step if found else 0) >= promised
    assert run(2, settings(tmp_path, **EVERY_STEP)) == undisturbed
    assert all(line["damaged"] == [] for line in events(tmp_path, "resumed"))


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.e2e
def test_when_torchruns_agent_is_killed_its_workers_go_too_and_the_next_start_changes_no_bit(
    tmp_path: Path, undisturbed: str
) -> None:
    agent = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command = [*agent, f"--master-port={free_port()}", "-m", "training.train"]
    soon = EVERY_STEP | {"timeouts.silence": 8}
    launcher = subprocess.Popen([*command, *settings(tmp_path, pace_seconds=0.05, **soon)])
    wait_for(lambda: in_the_making(tmp_path, 1))
    workers = children(launcher)
    launcher.kill()
    launcher.wait()
    _, alive = psutil.wait_procs(workers, timeout=PATIENCE_SECONDS)
    for worker in alive:
        kill(worker)
    assert len(workers) >= 2
    assert alive == []
    assert run(2, settings(tmp_path, **EVERY_STEP)) == undisturbed
