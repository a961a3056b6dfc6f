"""A rank that is slow, and a step that does not end, are found."""

from __future__ import annotations

import signal
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training.launch import events, reached, settings, start
from training.mesh import Mesh
from training.pulse import STACKS, Pulse, Sign, stragglers


def signs(*seconds: float) -> dict[int, Sign]:
    return {rank: Sign(own_seconds=own) for rank, own in enumerate(seconds)}


@pytest.mark.parametrize(
    ("seconds", "slow"),
    [
        ((0.1, 0.1, 0.25, 0.1), [2]),
        ((0.1, 0.25), [1]),
        ((0.3, 0.1, 0.1, 0.3), [0, 3]),
        ((0.1, 0.1, 0.15), []),
        ((0.001, 0.001, 0.009), []),  # nobody would notice
        ((0.0, 0.0, 0.3), []),  # the others have not begun
        ((0.5,), []),
    ],
)
def test_a_straggler_takes_twice_as_long_as_the_others(seconds: tuple[float, ...], slow: list[int]) -> None:
    assert stragglers(signs(*seconds)) == slow


class Pair:
    """Two ranks whose beats the test makes, and whose clock it moves."""

    def __init__(self, folder: Path, stall_seconds: float) -> None:
        self.store = dist.HashStore()
        self.told: list[tuple[str, dict[str, Any]]] = []
        self.now = 0.0
        self.ranks = [
            Pulse(
                Mesh(rank, 2, torch.device("cpu"), f"node-{rank}", self.store),
                60,
                stall_seconds,
                folder,
                lambda event, **values: self.told.append((event, values)),
                lambda: self.now,
            )
            for rank in (0, 1)
        ]
        for rank, pulse in enumerate(self.ranks):
            pulse.listen_to([1 - rank])
            self.store.set(f"pulse/{rank}", Sign().encode())
        self.beats = 0

    def beat(self) -> None:
        for pulse in self.ranks:
            self.beats += 1
            pulse.exchange(self.store, self.beats)


def test_rank_0_says_once_who_keeps_the_others_waiting_and_again_if_it_comes_back(tmp_path: Path) -> None:
    pair = Pair(tmp_path, stall_seconds=60)
    for seconds in (0.05, 0):
        for pulse, pause in zip(pair.ranks, (0.001, seconds), strict=True):
            for step in range(1, 60 if not seconds else 2):
                pulse.begin_step(step)
                pair.now += pause
                pulse.own_part_done()
                pulse.end_step()
        for _ in range(3):
            pair.beat()
    ((event, values),) = pair.told
    assert (event, values["rank"], values["node"]) == ("straggler", 1, "node-1")
    assert values["seconds"] == 0.05


def test_when_one_rank_is_stuck_all_write_down_where_they_are_once(tmp_path: Path) -> None:
    pair = Pair(tmp_path, stall_seconds=15)
    pair.ranks[1].begin_step(7)
    pair.now += 16
    enough = threading.Event()
    crowd = [threading.Thread(target=enough.wait, name="of many") for _ in range(120)]
    for thread in crowd:
        thread.start()
    for _ in range(3):
        pair.beat()
    enough.set()
    assert [event for event, _ in pair.told] == ["stalled"]
    written = sorted((tmp_path / STACKS).iterdir())
    assert [path.name for path in written] == [f"step-00000007-rank-0000{rank}.txt" for rank in (0, 1)]
    for stacks in (path.read_text() for path in written):
        assert "test_when_one_rank_is_stuck" in stacks.partition("\n\n")[0], "the main thread comes first"
        assert stacks.count("Thread of many") == len(crowd), "none is left out"


def test_a_step_that_takes_its_time_within_the_limit_is_none_that_stalls(tmp_path: Path) -> None:
    pair = Pair(tmp_path, stall_seconds=60)
    pair.ranks[1].begin_step(7)
    pair.now += 59
    for _ in range(3):
        pair.beat()
    assert pair.told == []


def test_between_steps_a_rank_may_take_its_time(tmp_path: Path) -> None:
    pair = Pair(tmp_path, stall_seconds=15)
    pair.ranks[0].begin_step(7)
    pair.ranks[0].end_step()
    pair.now += 16
    pair.beat()
    pair.beat()
    assert pair.told == []
    assert not (tmp_path / STACKS).exists()


@pytest.mark.e2e
def test_a_rank_that_stands_still_for_a_while_leaves_stacks_of_all_and_the_run_goes_on(
    tmp_path: Path,
) -> None:
    limits = ["--set", "timeouts.stall=2", "--set", "timeouts.silence=60"]
    ranks = start(2, [*settings(tmp_path, pace_seconds=0.2), *limits])
    ranks.until(lambda: reached(tmp_path, 4))
    ranks.send(1, signal.SIGSTOP)
    ranks.until(lambda: bool(events(tmp_path, "stalled")))
    ranks.send(1, signal.SIGCONT)
    assert [code for code, _ in ranks.wait()] == [0, 0]
    stacks = [path.read_text() for path in (tmp_path / STACKS).iterdir()]
    assert any("take_step" in each and "backward" in each for each in stacks)
