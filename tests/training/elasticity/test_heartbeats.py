"""Heartbeats between ranks: they find stragglers, ranks that fell silent, and work that hangs."""

import pickle
import signal
import subprocess
import sys
import threading
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training.launch import events, reached, settings, start
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.heartbeats import STACKS, Heartbeat, Heartbeats, Kind, stragglers
from trainyard_train.elasticity.rank_status import AGENT, RankStatuses
from trainyard_train.parallelism.mesh import Mesh


def signs(*seconds: float) -> dict[int, Heartbeat]:
    return {rank: Heartbeat(own_seconds=own) for rank, own in enumerate(seconds)}


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


class RankGroup:
    """Ranks of one process whose heartbeats and clock the test drives; exits are recorded, not executed."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch, size: int = 2, **seconds: float) -> None:
        self.store = dist.HashStore()
        self.logged: list[tuple[str, dict[str, Any]]] = []
        self.ends: list[int] = []
        self.now = 0.0
        self._work = ExitStack()
        patch.setattr("os._exit", self.ends.append)
        self.ranks = [
            Heartbeats(
                Mesh(rank, size, torch.device("cpu"), f"node-{rank}", self.store),
                TimeoutConfig(silence=60, **seconds),
                folder,
                lambda event, **values: self.logged.append((event, values)),
                lambda: self.now,
            )
            for rank in range(size)
        ]
        for rank, heartbeats in enumerate(self.ranks):
            heartbeats.listen_to(other for other in range(size) if other != rank)
            self.store.set(f"heartbeat/{rank}", "{}")
        self.beats = 0

    def beat(self) -> None:
        for heartbeats in self.ranks:
            self.beats += 1
            heartbeats.exchange(self.store, self.beats)

    def begin(self, rank: int, kind: Kind, step: int = 0) -> None:
        self._work.enter_context(self.ranks[rank].busy(kind, step))

    def pass_time(self, seconds: int) -> None:
        for _ in range(seconds):
            self.now += 1
            self.beat()


@pytest.fixture
def pair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> RankGroup:
    return RankGroup(tmp_path, monkeypatch, stall=15)


def test_rank_0_logs_once_which_rank_delays_the_others_and_again_if_it_returns(pair: RankGroup) -> None:
    for seconds in (0.05, 0):
        for heartbeats, pause in zip(pair.ranks, (0.001, seconds), strict=True):
            for step in range(1, 60 if not seconds else 2):
                with heartbeats.busy("step", step):
                    pair.now += pause
                    heartbeats.own_part_done()
        for _ in range(3):
            pair.beat()
    ((event, values),) = pair.logged
    assert (event, values["rank"], values["node"]) == ("straggler", 1, "node-1")
    assert values["seconds"] == 0.05


def test_when_one_rank_is_stuck_all_write_down_where_they_are_once(pair: RankGroup, tmp_path: Path) -> None:
    pair.begin(1, "step", 7)
    pair.now += 16
    enough = threading.Event()
    crowd = [threading.Thread(target=enough.wait, name="of many") for _ in range(120)]
    for thread in crowd:
        thread.start()
    for _ in range(3):
        pair.beat()
    enough.set()
    assert [event for event, _ in pair.logged] == ["stalled"]
    written = sorted((tmp_path / STACKS).iterdir())
    assert [path.name for path in written] == [f"step-00000007-rank-0000{rank}.txt" for rank in (0, 1)]
    for stacks in (path.read_text() for path in written):
        assert "test_when_one_rank_is_stuck" in stacks.partition("\n\n")[0], "the main thread comes first"
        assert stacks.count("Thread of many") == len(crowd), "none is left out"


def test_a_slow_step_within_the_limit_has_not_stalled(pair: RankGroup) -> None:
    pair.begin(1, "step", 7)
    pair.now += 14
    for _ in range(3):
        pair.beat()
    assert pair.logged == []


def test_a_rank_may_pause_between_steps(pair: RankGroup, tmp_path: Path) -> None:
    with pair.ranks[0].busy("step", 7):
        pass
    pair.now += 16
    pair.beat()
    pair.beat()
    assert pair.logged == []
    assert not (tmp_path / STACKS).exists()


@pytest.mark.parametrize(
    ("kind", "known", "stacks_after", "ends_after"),
    [
        ("step", True, 15, 20),
        ("step", False, 15, 600),  # it may compile
        ("evaluation", True, 15, 20),
        ("loading", False, 300, 600),
        ("save", True, 300, None),  # the saver has a timeout of its own
    ],
)
def test_a_rank_that_is_alone_and_hangs_writes_its_stacks_and_ends(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    kind: Kind,
    known: bool,
    stacks_after: int,
    ends_after: int | None,
) -> None:
    alone = RankGroup(tmp_path, monkeypatch, size=1)
    if known:
        with alone.ranks[0].busy(kind, 6):
            pass
    alone.begin(0, kind, 7)
    alone.pass_time(stacks_after)
    assert not (tmp_path / STACKS).exists()
    alone.pass_time(1)
    assert [path.name for path in (tmp_path / STACKS).iterdir()] == [f"{kind}-00000007-rank-00000.txt"]
    alone.pass_time((ends_after or 2000) - stacks_after - 1)
    assert alone.ends == []
    alone.pass_time(1)
    assert alone.ends == ([1] if ends_after else [])
    assert [event for event, _ in alone.logged] == ["stalled", "failed"][: len(alone.logged)]
    if ends_after:
        assert f"training: {kind}-00000007 has not ended after {ends_after + 1} s: " in capfd.readouterr().err


def test_slow_work_has_not_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = RankGroup(tmp_path, monkeypatch, size=1)
    with alone.ranks[0].busy("step", 1):
        alone.now += 100
    alone.begin(0, "step", 2)
    alone.pass_time(200)
    assert alone.logged == []
    alone.pass_time(800)
    assert ([event for event, _ in alone.logged], alone.ends) == (["stalled"], [])
    alone.pass_time(1)
    assert alone.ends == [1]


def test_ranks_that_hang_all_at_once_end_once_a_collective_could_not_take_as_long(pair: RankGroup) -> None:
    for rank in (0, 1):
        with pair.ranks[rank].busy("step", 1):
            pass
        pair.begin(rank, "step", 2)
    pair.pass_time(20)
    assert pair.ends == []
    pair.pass_time(1)
    assert pair.ends == [76, 76], "each may wait for another, so that starting again may help"


def test_until_the_first_step_is_done_a_rank_may_be_silent_for_as_long_as_a_start_may_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A load may hold the interpreter lock, so that no other thread of the rank runs."""
    group = RankGroup(tmp_path, monkeypatch)
    rank0 = group.ranks[0]
    group.now += 600
    assert rank0.silent() == []
    group.now += 1
    assert rank0.silent() == [1]
    with rank0.busy("step", 1):
        pass
    group.now += 60
    assert rank0.silent() == []
    group.now += 1
    assert rank0.silent() == [1]


@pytest.mark.parametrize(("watched", "threads"), [(False, 2), (True, 1)])
def test_no_rank_that_has_an_agent_is_taken_for_dead_for_its_silence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, watched: bool, threads: int
) -> None:
    begun: list[threading.Thread] = []
    monkeypatch.setattr(threading.Thread, "start", lambda thread: begun.append(thread))
    memory = RankStatuses.create(1)
    monkeypatch.setenv(AGENT, memory.environment(0)[AGENT])
    if not watched:
        monkeypatch.delenv(AGENT)
    RankGroup(tmp_path, monkeypatch).ranks[0].start()
    assert len(begun) == threads


def test_the_agent_learns_what_is_saved_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    memory = RankStatuses.create(2)
    monkeypatch.setenv(AGENT, memory.environment(1)[AGENT])
    alone = RankGroup(tmp_path, monkeypatch, size=1)
    alone.ranks[0].status.saved_step = 20
    with alone.ranks[0].busy("step", 21):
        alone.pass_time(15)
        assert not memory.ranks[1].stalled
        alone.pass_time(1)
        assert memory.ranks[1].stalled
    alone.pass_time(1)
    assert [(rank.saved_step, rank.stalled) for rank in memory.ranks] == [(0, False), (20, False)]
    assert memory.saved_step == 20


def test_a_process_that_was_stopped_has_not_hung(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    alone = RankGroup(tmp_path, monkeypatch, size=1)
    alone.begin(0, "step", 1)
    alone.now += 100_000
    for _ in range(4):
        alone.beat()
    assert alone.ends == []


def test_a_disk_that_hangs_does_not_prevent_stacks_on_stderr_nor_the_exit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    awake = threading.Event()
    monkeypatch.setattr("trainyard_train.elasticity.heartbeats._DISK_SECONDS", 0.1)
    monkeypatch.setattr(Path, "write_text", lambda path, text: awake.wait())
    alone = RankGroup(tmp_path, monkeypatch, size=1)
    try:
        alone.begin(0, "loading")
        alone.pass_time(601)
        output = capfd.readouterr().err
    finally:
        awake.set()
    assert "loading-rank-00000.txt: not written within 0.1 s; the stacks of all threads:" in output
    assert "test_a_disk_that_hangs" in output
    assert alone.ends == [1]


IN_THE_STORE = """
from tests.training.elasticity.test_heartbeats import *
store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)
answer = lambda store=store: store.set("heartbeat/1", '{"beat": 1}')
join = threading.Thread.join
threading.Thread.join = lambda *arguments: (answer(), join(*arguments))
class Last:
    def __del__(self, answer=answer):  # when Python ends
        for _ in range(1000):
            answer()
last = Last()
heartbeats = Heartbeats(Mesh(0, 2, torch.device("cpu"), "node-0", store), TimeoutConfig(), Path(), print)
heartbeats.start()
store.get("heartbeat/0")
heartbeats.stop()
"""


@pytest.mark.ranks
def test_a_run_ends_with_0_although_a_heartbeat_is_in_the_store() -> None:
    done = subprocess.run([sys.executable, "-c", IN_THE_STORE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.ranks
def test_one_process_whose_data_hangs_in_an_evaluation_reports_where_and_ends(tmp_path: Path) -> None:
    """The third evaluation never ends."""
    program = f"""
import threading
from trainyard_train import train
from trainyard_train.data.samples import Samples
take = Samples.take
looks = []
def hang(samples, indices):
    if len(indices) > 1 and indices.tolist() == [*range(len(indices))]:  # a first sample is taken alone
        looks.append(1)
    return threading.Event().wait() if len(looks) == 3 else take(samples, indices)
Samples.take = hang
train.main({[*settings(tmp_path, evaluate_every=1, **{"timeouts.stall": 1, "timeouts.collective": 3})]!r})
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert "training: evaluation-00000003 has not ended" in done.stderr
    assert [line["work"] for line in events(tmp_path, "stalled")][-1] == "evaluation-00000003"
    stacks = tmp_path / STACKS / "evaluation-00000003-rank-00000.txt"
    assert "in _look_at" in stacks.read_text()


@pytest.mark.ranks
def test_after_a_stall_the_stacks_of_all_ranks_are_written_and_the_run_continues(tmp_path: Path) -> None:
    limits = ["--set", "timeouts.stall=2", "--set", "timeouts.silence=60"]
    ranks = start(2, [*settings(tmp_path, pace_seconds=0.2), *limits])
    ranks.until(lambda: reached(tmp_path, 4))
    ranks.send(1, signal.SIGSTOP)
    ranks.until(lambda: bool(events(tmp_path, "stalled")))
    ranks.send(1, signal.SIGCONT)
    assert [code for code, _ in ranks.wait()] == [0, 0]
    written = list((tmp_path / STACKS).iterdir())
    assert any("in take_step" in path.read_text() for path in written if path.suffix == ".txt")
    flights = [path for path in written if "-flight-" in path.name]
    assert len(flights) == len(written) / 2
    assert "gloo:all_reduce" in {
        each["profiling_name"] for each in pickle.loads(flights[0].read_bytes())["entries"]
    }
