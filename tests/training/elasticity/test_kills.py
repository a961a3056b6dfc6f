"""Killed again and again, at moments and in ways that a seed draws: no committed checkpoint is lost, no bit
changes.

A node of two ranks runs under its agent, and every step is saved, so that many of the kills fall into a
commit. `make test` runs twenty kills, `make soak` a thousand; the seed is in the test's name.
"""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import psutil
import pytest

from tests.processes import TIMEOUT_SECONDS, free_port, kill, wait_for
from tests.training.hold import hold
from tests.training.launch import Rank, events, run, settings, sha256, start_agent
from tests.training.s3 import BUCKET, Proxy, environment, s3
from trainyard_train.checkpointing.checkpoint import CheckpointStore
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.observability.metrics import FILE, read_metrics
from trainyard_train.trainer import FINAL

__all__ = ["s3"]
KILLS = 10
"""In one run."""
EVERY_STEP = {
    "steps": 200,
    "checkpoint.every_steps": 1,
    "checkpoint.keep_last": 2,
    "model.dropout": 0.2,
}
LONG_TIMEOUTS = {"restarts": KILLS, "timeouts.rejoin": TIMEOUT_SECONDS, "timeouts.store": 2}
LONGEST_LIFE = 40
"""Steps after which the ranks wait for the next kill, so that the run has not ended before the last one."""
PROCESSES = ("rank 0", "rank 1", "both ranks", "agent", "node")
CUT_SECONDS = 4.0
"""For which a store is unreachable at most; some cuts last longer than a request may take."""
Losses = Mapping[str, Callable[[], object]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(2, settings(tmp_path_factory.mktemp("undisturbed"), **EVERY_STEP))


class SingleNode:
    """The only machine of a run: an agent and its two ranks; another comes whenever the agent has ended."""

    def __init__(self, run_dir: Path, store: str = "", variables: Mapping[str, str] | None = None) -> None:
        self.run_dir, self.store, self.held = run_dir, store, run_dir / "held"
        self.variables = {**(variables or {}), **hold(self.held, LONGEST_LIFE)}
        self.start()

    def start(self, pace_seconds: float = 0.02) -> None:
        values: dict[str, object] = {**EVERY_STEP, **LONG_TIMEOUTS, "pace_seconds": pace_seconds}
        if self.store:
            values["checkpoint.store"] = self.store
        self.agent: Rank = start_agent(2, settings(self.run_dir, **values), self.variables)

    def ranks(self) -> list[psutil.Process]:
        """The running ranks, in order of their start."""
        with suppress(psutil.NoSuchProcess):
            return sorted(psutil.Process(self.agent.process.pid).children(), key=lambda rank: rank.pid)
        return []

    def until(self, condition: Callable[[], bool]) -> None:
        """Return once the condition holds. Nothing but a store that is away may end the node meanwhile."""

        def holds() -> bool:
            if condition():
                return True
            if not self.agent.process.is_alive():
                code, words = self.agent.wait()
                assert (code, "StoreError" in words) == (1, True), f"{code}: {words}"
                self.start()
            return False

        wait_for(holds, lambda: self.agent.words.read_text())

    def lose(self, what: str) -> None:
        """Kill ranks, which the agent starts again, or the agent, perhaps with them; then start another."""
        self.until(lambda: len(self.ranks()) == 2)
        ranks = self.ranks()
        if what in {"agent", "node"}:
            self.agent.process.kill()
        for rank in {"rank 0": ranks[:1], "rank 1": ranks[1:], "agent": []}.get(what, ranks):
            kill(rank)
        if what in {"agent", "node"}:
            self.agent.wait()
            _, alive = psutil.wait_procs(ranks, timeout=TIMEOUT_SECONDS)
            assert alive == [], "ranks end with their agent"
            self.start()

    def finish(self) -> None:
        """Let the run come to its end without delay."""
        self.agent.process.kill()
        self.agent.wait()
        self.held.unlink()
        self.start(pace_seconds=0)
        self.until((self.run_dir / FINAL).exists)
        assert self.agent.wait()[0] == 0


@dataclass
class RunHistory:
    """The metrics of a run, and how many of them were known at the last failure."""

    run_dir: Path
    lines: int = 0
    attempt: int = 0

    def mark(self) -> None:
        """From here on steps count."""
        known = read_metrics(self.run_dir / FILE)
        self.lines = len(known)
        self.attempt = max((line["attempt"] for line in known), default=0)

    def continues(self) -> bool:
        """Whether a later attempt has taken a step, or this one many, if it was not ended."""
        steps = [
            line["attempt"]
            for line in read_metrics(self.run_dir / FILE)[self.lines :]
            if line["event"] == "step"
        ]
        return any(attempt > self.attempt for attempt in steps) or len(steps) > 3


def survive(node: SingleNode, store: CheckpointStore, chance: random.Random, losses: Losses) -> None:
    """Let a run lose what chance draws, each soon after a step or already while its ranks start; then end."""
    story = RunHistory(node.run_dir)
    for _ in range(KILLS):
        if chance.random() < 0.7:
            node.until(story.continues)
        time.sleep(chance.random() * 0.2)
        promised = max((line["step"] for line in events(node.run_dir, "checkpoint")), default=0)
        story.mark()
        losses[chance.choice(list(losses))]()
        found = store.newest(lambda step, reason: pytest.fail(f"step {step}: {reason}"))
        assert (found.manifest.step if found else 0) >= promised
    node.finish()
    committed = 0
    for line in read_metrics(node.run_dir / FILE):
        if line["event"] == "checkpoint":
            committed = max(committed, line["step"])
        if line["event"] in {"started", "resumed"}:
            assert (line["step"] >= committed, line["damaged"]) == (True, [])


def seeds(first: int, always: int, most: int) -> list[object]:
    """Those of `make test`, then those of `make soak`."""
    return [
        pytest.param(seed, marks=pytest.mark.ranks if seed < first + always else pytest.mark.soak)
        for seed in range(first, first + most)
    ]


@pytest.mark.parametrize("seed", seeds(0, 1, most=72))
def test_losses_at_random_moments_cost_no_committed_checkpoint_and_no_bit(
    tmp_path: Path, undisturbed: str, seed: int
) -> None:
    node = SingleNode(tmp_path)
    losses = {what: partial(node.lose, what) for what in PROCESSES}
    survive(node, open_store(str(tmp_path / "checkpoints")), random.Random(seed), losses)
    assert sha256(tmp_path) == undisturbed


def cut(proxy: Proxy, chance: random.Random, then: Callable[[], object] = lambda: None) -> None:
    """For a while, requests to the store do not arrive, or their answers do not."""
    faults = random.Random(chance.random())
    seconds = chance.random() * CUT_SECONDS
    proxy.reset(lambda verb, path, number: faults.choice(["drop", "mute"]))
    time.sleep(seconds / 2)
    then()
    time.sleep(seconds / 2)
    proxy.reset()


@pytest.mark.parametrize("seed", seeds(100, 1, most=31))
def test_losing_the_connection_to_a_store_too_costs_no_committed_checkpoint_and_no_bit(
    tmp_path: Path, undisturbed: str, s3: Proxy, seed: int
) -> None:
    chance, url = random.Random(seed), f"s3://{BUCKET}/{tmp_path.name}"
    node = SingleNode(tmp_path, url, environment(s3))
    losses = {what: partial(node.lose, what) for what in PROCESSES} | {
        "connection": partial(cut, s3, chance),
        "connection, and a rank meanwhile": partial(cut, s3, chance, partial(node.lose, "rank 0")),
    }
    survive(node, open_store(url), chance, losses)
    assert sha256(tmp_path) == undisturbed


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.ranks
def test_when_torchruns_agent_is_killed_its_workers_go_too_and_the_next_start_changes_no_bit(
    tmp_path: Path, undisturbed: str
) -> None:
    agent = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command = [*agent, f"--master-port={free_port()}", "-m", "trainyard_train.train"]
    soon = EVERY_STEP | {"timeouts.silence": 8}
    launcher = subprocess.Popen([*command, *settings(tmp_path, pace_seconds=0.05, **soon)])
    wait_for(lambda: bool(events(tmp_path, "step")))
    workers = children(launcher)
    launcher.kill()
    launcher.wait()
    _, alive = psutil.wait_procs(workers, timeout=TIMEOUT_SECONDS)
    for worker in alive:
        kill(worker)
    assert len(workers) >= 2
    assert alive == []
    assert run(2, settings(tmp_path, **EVERY_STEP)) == undisturbed
