"""The agent of a node: it forks the ranks, restarts them when one fails, and combines their exit codes."""

import faulthandler
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import psutil
import pytest

from tests.processes import TIMEOUT_SECONDS, wait_for
from tests.training.hold import hold
from tests.training.launch import (
    Ranks,
    events,
    ranks_of,
    reached,
    rendezvous_variables,
    run,
    settings,
    sha256,
    start_agent,
)
from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.agent import Agent, Node, combined_exit_code, node_of
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.rank_status import RankStatus

TWO_NODES = {
    "PET_NNODES": "2",
    "PET_NPROC_PER_NODE": "4",
    "PET_NODE_RANK": "1",
    "PET_MASTER_ADDR": "job-node-0-0.job",
    "PET_MASTER_PORT": "29400",
}
SOON = TimeoutConfig(rejoin=0.5, silence=3)


def test_a_rank_gets_its_number_in_torchruns_variables() -> None:
    assert node_of(TWO_NODES).environment(2, 4, 29400) == {
        "RANK": "6",
        "WORLD_SIZE": "8",
        "LOCAL_RANK": "2",
        "LOCAL_WORLD_SIZE": "4",
        "MASTER_ADDR": "job-node-0-0.job",
        "MASTER_PORT": "29400",
        "TORCHELASTIC_USE_AGENT_STORE": "True",  # it survives the ranks
    }


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"PET_NNODES": "many"}, "PET_NNODES: got 'many'"),
        ({"PET_NNODES": "0"}, "PET_NNODES: got '0'"),
        ({"PET_NODE_RANK": "2"}, "PET_NODE_RANK: got 2; allowed: less than PET_NNODES (2)"),
        ({"PET_NPROC_PER_NODE": "some"}, "PET_NPROC_PER_NODE: got 'some'"),
        ({"PET_MASTER_PORT": "70000"}, "PET_MASTER_PORT: got '70000'"),
    ],
)
def test_an_impossible_rank_or_address_is_reported(change: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        node_of(TWO_NODES | change)
    assert any(problem.startswith(message) for problem in refused.value.problems)


def test_several_nodes_need_a_rendezvous_address() -> None:
    with pytest.raises(ConfigError, match="PET_MASTER_ADDR, PET_MASTER_PORT: missing; 2 nodes"):
        node_of({"PET_NNODES": "2"})


@pytest.mark.parametrize("processes", ["auto", "gpu"])
@pytest.mark.parametrize(
    ("torch", "reason"),
    [
        ("raise ImportError('no libcudart')", "failed, see above"),
        ("raise SystemExit", "failed, see above"),
        ("import os; os.kill(os.getpid(), 11)", "was ended by signal 11"),
    ],
)
def test_gpus_that_pytorch_cannot_count_are_neither_one_nor_none(
    torch: str, reason: str, processes: str, tmp_path: Path
) -> None:
    (tmp_path / "torch.py").write_text(torch)
    program = (
        "from trainyard_train.elasticity.agent import Agent, Node, TimeoutConfig\n"
        f"work = lambda *_: open({str(tmp_path / 'started')!r}, 'w').close() or 0\n"
        f"Agent(Node(PET_NPROC_PER_NODE={processes!r}), work, 0, TimeoutConfig()).run(0)"
    )
    path = f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"
    variables = {**os.environ, "PYTHONPATH": path}
    ended = subprocess.run([sys.executable, "-c", program], env=variables, capture_output=True, text=True)
    assert f"PET_NPROC_PER_NODE: PyTorch {reason}" in ended.stderr
    assert ("no libcudart" in ended.stderr) == ("libcudart" in torch)
    assert not (tmp_path / "started").exists()


@pytest.mark.parametrize(
    ("ends", "code"),
    [
        ([0, 0], 0),
        ([75, 75], 75),
        ([75, 76], 75),  # the second rank saw that the first one had exited
        ([-9, 76], -9),
        ([-11, 1], -11),  # the others' codes follow from it
        ([76, 76], 76),
        ([77, 76], 77),  # the rank that waited longest knows the cause
        ([1, 76], 1),
        ([1, 77], 1),
        ([0, 1], 1),
        ([2, 2], 2),
        ([78, 76], 78),
        ([76, -9, 79], 79),
        ([255, 76], 255),
        ([120, 76], 120),  # Python could not end as it should
    ],
)
def test_one_exit_code_covers_all_ranks(ends: list[int], code: int) -> None:
    assert combined_exit_code(ends) == code


def agent(
    folder: Path,
    work: Callable[[Path, float], int],
    restarts: int = 3,
    ranks: int = 2,
    timeouts: TimeoutConfig = SOON,
) -> int:
    """Run an agent in a separate process, since it handles signals; return its exit code."""
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    os._exit(
        Agent(
            Node(PET_NPROC_PER_NODE=str(ranks)),
            lambda _started, timeout: work(folder, timeout),
            restarts,
            timeouts,
        ).run(0)
    )


def note(folder: Path, text: str) -> int:
    """Append a line to this rank's file; return its number of lines, over all attempts.

    Waits until all ranks of the attempt have written theirs: else a rank that ends early makes its agent end
    the others before they have.
    """
    rank, ranks = int(os.environ["RANK"]), range(int(os.environ["WORLD_SIZE"]))
    with (folder / str(rank)).open("a") as file:
        file.write(f"{text}\n")
    count = len(notes(folder, rank))
    wait_for(lambda: all(len(notes(folder, other)) >= count for other in ranks))
    return count


def notes(folder: Path, rank: int) -> list[str]:
    file = folder / str(rank)
    return file.read_text().splitlines() if file.exists() else []


def test_a_killed_rank_and_its_peers_are_restarted(tmp_path: Path) -> None:
    def work(folder: Path, timeout: float) -> int:
        if note(folder, f"{timeout:g}") > 1:
            return 0
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGKILL)
        return 76

    assert agent(tmp_path, work) == 0
    assert notes(tmp_path, 0) == notes(tmp_path, 1) == [f"{SOON.rendezvous:g}", "0.5"]


def test_ranks_with_a_failed_peer_elsewhere_wait_for_it_but_not_for_long(tmp_path: Path) -> None:
    def work(folder: Path, timeout: float) -> int:
        return 76 if note(folder, f"{timeout:g}") == 1 else 77

    assert agent(tmp_path, work) == 76
    assert notes(tmp_path, 0) == [f"{SOON.rendezvous:g}", "0.5"]


def test_a_rank_that_always_fails_fails_the_node(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    """Else the survivors of a node that always fails would make all nodes restart for ever."""
    assert agent(tmp_path, lambda folder, _: note(folder, "came") and 76, restarts=2) == 1
    assert len(notes(tmp_path, 0)) == 3
    assert "a rank failed after each of 2 restarts" in capfd.readouterr().err


def test_without_restarts_in_place_a_failed_rank_is_reported_at_once(tmp_path: Path) -> None:
    assert agent(tmp_path, lambda folder, _: note(folder, "came") and 76, restarts=0) == 76


@pytest.mark.parametrize(("returned", "code"), [(1, 1), (77, 77), (137, 137), (255, 255), (-1, 255)])
def test_what_fails_by_itself_or_never_arrived_is_not_started_again(
    tmp_path: Path, returned: int, code: int
) -> None:
    """Large exit codes are failures too, and no signals."""
    assert agent(tmp_path, lambda folder, _: note(folder, "came") and returned) == code
    assert notes(tmp_path, 0) == ["came"]


def test_it_ends_when_restarts_do_not_help(tmp_path: Path) -> None:
    def work(folder: Path, _: float) -> int:
        note(folder, "came")
        os.kill(os.getpid(), signal.SIGUSR1)
        return 0

    assert agent(tmp_path, work, restarts=2, ranks=1) == 128 + signal.SIGUSR1
    assert len(notes(tmp_path, 0)) == 3


def test_a_rank_that_hangs_does_not_keep_the_others_from_their_restart(tmp_path: Path) -> None:
    def work(folder: Path, _: float) -> int:
        if note(folder, "came") > 1:
            return 0
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGSTOP)
        return 76

    assert agent(tmp_path, work) == 0
    assert len(notes(tmp_path, 1)) == 2


def test_a_rank_that_is_stopped_for_long_has_failed(tmp_path: Path) -> None:
    """Its peers wait for it, and its connections are open."""

    def work(folder: Path, _: float) -> int:
        if note(folder, "came") > 1:
            return 0
        if os.environ["RANK"] == "1":
            os.kill(os.getpid(), signal.SIGSTOP)
        time.sleep(TIMEOUT_SECONDS)
        return 1

    assert agent(tmp_path, work) == 0
    assert len(notes(tmp_path, 0)) == 2


def test_a_rank_that_continues_in_time_has_not_failed(tmp_path: Path) -> None:
    def work(folder: Path, _: float) -> int:
        process = os.getpid()
        if note(folder, "came") == 1 and not os.fork():
            os.kill(process, signal.SIGSTOP)
            wait_for(lambda: psutil.Process(process).status() == psutil.STATUS_STOPPED)
            time.sleep(0.1)  # until its agent has been notified
            os.kill(process, signal.SIGCONT)
            os._exit(0)
        time.sleep(timeouts.silence + 1)
        return 0

    timeouts = TimeoutConfig(silence=6)
    assert agent(tmp_path, work, ranks=1, timeouts=timeouts) == 0
    assert len(notes(tmp_path, 0)) == 1


@pytest.mark.parametrize(("stalled", "code"), [(True, 76), (False, 128 + signal.SIGABRT)])
def test_a_rank_that_nccls_watchdog_ends_is_a_failed_peer(tmp_path: Path, stalled: bool, code: int) -> None:
    def work(_folder: Path, _: float) -> int:
        faulthandler.disable()  # pytest's
        RankStatus.from_environment().stalled = stalled
        os.abort()

    assert agent(tmp_path, work, restarts=0, ranks=1) == code


@pytest.mark.parametrize(("saves", "attempts"), [([0, 0, 0, 0, 0], 3), ([10, 10, 20, 20, 20], 5)])
def test_restarts_count_since_a_newer_checkpoint(tmp_path: Path, saves: list[int], attempts: int) -> None:
    """With two restarts; the first attempt's checkpoint is the one that it resumed from, or its first."""

    def work(folder: Path, _: float) -> int:
        attempt = note(folder, "came")
        RankStatus.from_environment().saved_step = saves[attempt - 1]
        return 76

    assert agent(tmp_path, work, restarts=2, ranks=1) == 1
    assert len(notes(tmp_path, 0)) == attempts


@pytest.mark.parametrize(
    ("raised", "restarts", "code", "attempts"),
    [
        (["0 ECC error"], 3, 0, 2),
        (["3 same", "3 same"], 3, 1, 2),
        (["3 same", "4 same", "4 other"], 3, 0, 4),
        (["1 a", "2 b", "3 c"], 2, 1, 3),
        (["1 a"], 0, 1, 1),
    ],
    ids=["once", "the same twice", "each another", "too often", "no restarts"],
)
def test_an_exception_restarts_the_ranks_unless_it_is_the_same_after_the_same_step(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    raised: list[str],
    restarts: int,
    code: int,
    attempts: int,
) -> None:
    """Raised by rank 1 in each attempt: the number of the last step, and the message."""

    def work(folder: Path, _: float) -> int:
        attempt = note(folder, "came")
        if attempt > len(raised) or os.environ["RANK"] == "0":
            return 0 if attempt > len(raised) else 76
        step, message = raised[attempt - 1].split(maxsplit=1)
        RankStatus.from_environment().step = int(step)
        raise RuntimeError(message)

    assert agent(tmp_path, work, restarts) == code
    assert len(notes(tmp_path, 1)) == attempts
    errors = capfd.readouterr().err
    assert errors.count("RuntimeError: ") == len(raised)
    assert ("has raised the same exception after the same step again" in errors) == (
        len(set(raised)) < len(raised)
    )


# With real training.

ENDLESS = {"pace_seconds": 0.05, "steps": 10_000}


def node(arguments: Sequence[str], **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "trainyard_train.train", *arguments]
    return subprocess.Popen(command, env=os.environ | environment)


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run(2, settings(tmp_path_factory.mktemp("undisturbed")))


@pytest.mark.ranks
@pytest.mark.parametrize("killed_node", [0, 1])
def test_a_rank_killed_on_one_of_two_nodes_resumes_from_memory_and_no_bit_is_changed(
    tmp_path: Path, undisturbed: str, killed_node: int
) -> None:
    held = tmp_path / "held"
    variables = {**rendezvous_variables(2), **hold(held, 15)}
    long_timeout = settings(tmp_path, **{"timeouts.rejoin": TIMEOUT_SECONDS})
    nodes = Ranks([start_agent(1, long_timeout, {**variables, "PET_NODE_RANK": str(n)}) for n in range(2)])
    saved = tmp_path / "checkpoints" / "step-00000010"
    nodes.until(lambda: reached(tmp_path, 15) and (saved / "manifest.json").exists())
    for file in saved.glob("rank-*"):
        file.write_bytes(bytes(file.stat().st_size))  # damage the files, so that reading them would fail
    ranks_of(nodes.ranks[killed_node].process.pid)[0].kill()
    held.unlink()
    ended = nodes.wait()
    assert [code for code, _ in ended] == [0, 0], ended
    resumed = events(tmp_path, "resumed")
    assert [line["bytes_from_store"] for line in resumed] == [0] * len(resumed)
    assert [line["attempt"] for line in resumed][-1] >= 2
    assert sha256(tmp_path) == undisturbed


@pytest.mark.ranks
def test_a_node_that_does_not_come_back_is_distinguished_from_a_failure(tmp_path: Path) -> None:
    arguments, variables = settings(tmp_path, **ENDLESS, **{"timeouts.rejoin": 1}), rendezvous_variables(2)
    nodes = [node(arguments, PET_NODE_RANK=str(number), **variables) for number in range(2)]
    try:
        wait_for(lambda: reached(tmp_path, 5))
        nodes[0].kill()
        assert nodes[1].wait(TIMEOUT_SECONDS) == 76
    finally:
        for each in nodes:
            each.kill()
            each.wait()


@pytest.mark.ranks
def test_ctrl_c_saves_the_step_and_the_next_start_resumes(tmp_path: Path, undisturbed: str) -> None:
    arguments = ["--nproc-per-node=2", *settings(tmp_path)]
    process = node([*arguments, "--set", "pace_seconds=0.5"])
    wait_for(lambda: reached(tmp_path, 3))
    process.send_signal(signal.SIGINT)
    assert process.wait(TIMEOUT_SECONDS) == 75
    assert events(tmp_path, "checkpoint")[-1]["reason"] == "notice"
    assert node(arguments).wait(TIMEOUT_SECONDS) == 0
    assert sha256(tmp_path) == undisturbed


@pytest.mark.ranks
def test_ranks_do_not_outlive_their_agent(tmp_path: Path) -> None:
    process = node(["--nproc-per-node=2", *settings(tmp_path, **ENDLESS)])
    wait_for(lambda: reached(tmp_path, 1))
    ranks = psutil.Process(process.pid).children()
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs(ranks, timeout=TIMEOUT_SECONDS)
    assert len(ranks) == 2
    assert alive == []
