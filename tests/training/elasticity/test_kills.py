"""Repeated kills of a run, at moments and in ways that a seed draws, cost no committed checkpoint and no bit.

A node of two ranks runs under its agent and saves every step, so that many kills hit a commit. `make test`
runs twenty kills, `make soak` a thousand; the seed is in the test's name.
"""

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
from trainyard_train.contract import FILE, read_metrics
from trainyard_train.trainer import FINAL

__all__ = ["s3"]
KILLS = 10
"""Kills of one run."""
EVERY_STEP = {"steps": 200, "checkpoint.every_steps": 1, "checkpoint.keep_last": 2, "model.dropout": 0.2}
LONG_TIMEOUTS = {"restarts": KILLS, "timeouts.rejoin": TIMEOUT_SECONDS, "timeouts.store": 2}
LONGEST_LIFE = 40
"""Steps after which the ranks wait for the next kill, so that the run does not end before the last kill."""
PROCESSES = ("rank 0", "rank 1", "both ranks", "agent", "node")
CUT_SECONDS = 4.0
"""Longest time for which the store is unreachable; some cuts last longer than a request may take."""
Failures = Mapping[str, Callable[[], object]]


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(2, settings(tmp_path_factory.mktemp("undisturbed"), **EVERY_STEP))


class SingleNode:
    """The only node of a run: an agent and its two ranks. A new agent starts whenever one has ended."""

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
        """Return the running ranks, in the order of their start."""
        with suppress(psutil.NoSuchProcess):
            return sorted(psutil.Process(self.agent.process.pid).children(), key=lambda rank: rank.pid)
        return []

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. Meanwhile, only an unreachable store may end the node."""

        def holds() -> bool:
            if condition():
                return True
            if not self.agent.process.is_alive():
                code, output = self.agent.wait()
                assert (code, "StoreError" in output) == (1, True), f"{code}: {output}"
                self.start()
            return False

        wait_for(holds, lambda: self.agent.log.read_text())

    def kill(self, what: str) -> None:
        """Kill ranks, which the agent restarts; or the agent, alone or with its ranks, which is replaced."""
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
        """Run to the end, without further kills or pauses."""
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
        """Count steps from here on."""
        known = read_metrics(self.run_dir / FILE)
        self.lines = len(known)
        self.attempt = max((line["attempt"] for line in known), default=0)

    def continues(self) -> bool:
        """Whether a later attempt has taken a step, or the same attempt more than three."""
        steps = [
            line["attempt"]
            for line in read_metrics(self.run_dir / FILE)[self.lines :]
            if line["event"] == "step"
        ]
        return any(attempt > self.attempt for attempt in steps) or len(steps) > 3


def assert_survives(
    node: SingleNode, store: CheckpointStore, chance: random.Random, failures: Failures
) -> None:
    """Inject failures that chance draws, each soon after a step or while ranks start; then run to the end."""
    history = RunHistory(node.run_dir)
    for _ in range(KILLS):
        if chance.random() < 0.7:
            node.until(history.continues)
        time.sleep(chance.random() * 0.2)
        promised = max((line["step"] for line in events(node.run_dir, "checkpoint")), default=0)
        history.mark()
        failures[chance.choice(list(failures))]()
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
    """The seeds of `make test`, then those of `make soak`."""
    return [
        pytest.param(seed, marks=pytest.mark.ranks if seed < first + always else pytest.mark.soak)
        for seed in range(first, first + most)
    ]


@pytest.mark.parametrize("seed", seeds(0, 1, most=72))
def test_kills_at_random_moments_cost_no_committed_checkpoint_and_no_bit(
    tmp_path: Path, undisturbed: str, seed: int
) -> None:
    node = SingleNode(tmp_path)
    failures = {what: partial(node.kill, what) for what in PROCESSES}
    assert_survives(node, open_store(str(tmp_path / "checkpoints")), random.Random(seed), failures)
    assert sha256(tmp_path) == undisturbed


def cut(proxy: Proxy, chance: random.Random, then: Callable[[], object] = lambda: None) -> None:
    """Drop requests to the store, or its responses, for a while; call `then` in the middle."""
    faults = random.Random(chance.random())
    seconds = chance.random() * CUT_SECONDS
    proxy.reset(lambda verb, path, number: faults.choice(["drop", "mute"]))
    time.sleep(seconds / 2)
    then()
    time.sleep(seconds / 2)
    proxy.reset()


@pytest.mark.parametrize("seed", seeds(100, 1, most=31))
def test_kills_and_lost_connections_to_the_store_cost_no_committed_checkpoint_and_no_bit(
    tmp_path: Path, undisturbed: str, s3: Proxy, seed: int
) -> None:
    chance, url = random.Random(seed), f"s3://{BUCKET}/{tmp_path.name}"
    node = SingleNode(tmp_path, url, environment(s3))
    failures = {what: partial(node.kill, what) for what in PROCESSES} | {
        "connection": partial(cut, s3, chance),
        "connection, and a rank meanwhile": partial(cut, s3, chance, partial(node.kill, "rank 0")),
    }
    assert_survives(node, open_store(url), chance, failures)
    assert sha256(tmp_path) == undisturbed


def children(process: subprocess.Popen[bytes]) -> list[psutil.Process]:
    return psutil.Process(process.pid).children(recursive=True)


@pytest.mark.ranks
def test_torchruns_killed_agent_ends_its_workers_and_changes_no_bit(tmp_path: Path, undisturbed: str) -> None:
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
