"""Failures on 3 to 16 nodes whose collectives hang once a peer has died, as NCCL's do.

Each node is an agent with one rank, all on this host. A seed decides what fails, and where. After a rank has
failed, the run must take a new step within `silence + rejoin + 3` seconds in `make soak`, and before any
timeout beside other tests. After an agent has failed, the run must continue; the time depends on how long a
new agent takes to start.
"""

import random
import signal
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.processes import TIMEOUT_SECONDS, kill, wait_for
from tests.training.hold import hold
from tests.training.launch import Nodes, events, reached, run, settings, sha256
from trainyard_train.elasticity.config import TimeoutConfig

TIMEOUTS = TimeoutConfig()
SECONDS = TIMEOUTS.silence + TIMEOUTS.rejoin + 3
"""Limit from a failure to the first new step."""
SAVED = {
    "steps": 60,
    "checkpoint.every_steps": 2,
    "timeouts.silence": TIMEOUTS.silence,
    "timeouts.collective": TIMEOUTS.collective,
}
PACED = {**SAVED, "pace_seconds": 0.2, "steps": 10_000}


@contextmanager
def started(count: int, arguments: list[str], variables: Mapping[str, str] | None = None) -> Iterator[Nodes]:
    nodes = Nodes.start(count, arguments, variables)
    try:
        yield nodes
    finally:
        for rank in nodes.ranks:
            rank.process.kill()
            rank.process.join()


def inject_failure(nodes: Nodes, what: str, number: int) -> None:
    """Kill or stop a node's rank; or kill its agent, and start a new one at once."""
    if what == "agent":
        agent = nodes.ranks[number].process
        agent.kill()
        agent.join()
        nodes.ranks[number] = nodes.start_one(number)
        return
    wait_for(lambda: nodes.rank_of(number), nodes.output)
    rank = nodes.rank_of(number)
    assert rank
    if what == "stopped":
        rank.send_signal(signal.SIGSTOP)
    else:
        kill(rank)


def seconds_to_next_step(nodes: Nodes, run_dir: Path, what: str, number: int) -> float:
    """Inject a failure once checkpoints are saved; return the seconds until the next attempt's first step."""
    attempt = events(run_dir, "step")[-1]["attempt"]
    nodes.until(lambda: [line["attempt"] for line in events(run_dir, "checkpoint")].count(attempt) > 1)
    begin = time.time()
    inject_failure(nodes, what, number)

    def later() -> list[float]:
        return [line["time"] for line in events(run_dir, "step") if line["attempt"] > attempt]

    nodes.until(lambda: bool(later()))
    return later()[0] - begin


def drawn_failures(seed: int, count: int) -> list[tuple[str, int]]:
    """Draw what fails in turn: each kind once, on a random node, then a rank or the agent of node 0."""
    chance = random.Random(seed)
    drawn = [(what, chance.randrange(count)) for what in ("killed", "stopped", "agent")]
    return [*drawn, (chance.choice(["killed", "agent"]), 0)]


@pytest.mark.ranks
def test_three_nodes_continue_after_each_failure_in_time_and_no_bit_is_changed(tmp_path: Path) -> None:
    held, silence = tmp_path / "held", 60
    timeouts = {"timeouts.silence": silence, "timeouts.collective": 120, "timeouts.rejoin": TIMEOUT_SECONDS}
    arguments = settings(tmp_path, **SAVED | timeouts, pace_seconds=0.1)
    with started(3, arguments, hold(held, 15)) as nodes:
        nodes.until(lambda: reached(tmp_path, 5))
        for what, number in (("killed", 0), ("agent", 1)):
            taken = seconds_to_next_step(nodes, tmp_path, what, number)
            assert what == "agent" or taken < silence, "it did not wait for the rank's node to fall silent"
        held.unlink()
        assert [code for code, _ in nodes.wait()] == [0, 0, 0]
    alone = run(3, settings(tmp_path / "undisturbed", **SAVED))
    assert sha256(tmp_path) == alone


@pytest.mark.ranks
@pytest.mark.parametrize("killed", [0, 2])
def test_when_a_node_is_not_replaced_the_others_exit_for_a_restart(tmp_path: Path, killed: int) -> None:
    collective = 120
    with started(3, settings(tmp_path, **PACED | {"timeouts.collective": collective})) as nodes:
        nodes.until(lambda: reached(tmp_path, 3))
        nodes.ranks[killed].process.kill()
        begin = time.monotonic()
        survivors = [rank.wait() for number, rank in enumerate(nodes.ranks) if number != killed]
        assert [code for code, _ in survivors] == [76, 76], survivors
        assert time.monotonic() - begin < collective, "no rank waited for a collective to end"


@pytest.mark.ranks
def test_what_fails_on_one_node_ends_the_others_with_no_restart(tmp_path: Path) -> None:
    """A second signal ends a rank with exit code 1, while all ranks wait for a checkpoint of a minute."""
    slow = {**PACED, "checkpoint.every_steps": 1000, "checkpoint.pace_seconds": 60, "timeouts.silence": 60}
    with started(3, settings(tmp_path, **slow)) as nodes:
        nodes.until(lambda: reached(tmp_path, 3))
        rank = nodes.rank_of(1)
        assert rank
        rank.terminate()
        nodes.until(lambda: bool(events(tmp_path, "notice")))
        rank.terminate()
        begin = time.monotonic()
        ended = nodes.wait()
        assert [code for code, _ in ended] == [76, 1, 76], ended
        assert time.monotonic() - begin < 50
        assert not any("restarting this node's ranks" in output for _, output in ended)


@pytest.mark.soak
@pytest.mark.ranks
@pytest.mark.parametrize("seed", range(14))
def test_up_to_sixteen_nodes_continue_after_each_failure(tmp_path: Path, seed: int) -> None:
    count = 3 + seed
    with started(count, settings(tmp_path, **PACED)) as nodes:
        nodes.until(lambda: reached(tmp_path, 5))
        taken = {}
        for what, number in drawn_failures(seed, count):
            taken[what, number] = seconds_to_next_step(nodes, tmp_path, what, number)
        assert all(seconds < SECONDS for (what, _), seconds in taken.items() if what != "agent"), taken
