"""Kills, interrupts and refusals on the local stack; the last tests take it down without a trace."""

import os
import signal
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from engine.locks import hold
from tests.e2e import manifests
from tests.e2e.kills import (
    CONTROL_PLANE,
    DEFINITIONS,
    NODES,
    OPERATORS,
    Moment,
    kill_all,
    kill_command,
    kill_up,
)
from tests.e2e.machine import Traces, processes_of
from tests.e2e.manifests import NAMESPACE
from tests.e2e.stack import JOB, NAME, LocalStack, Running, TrainingRun, job, overrides

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

NOBODY = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
# The tests may be in a folder of root, whose files the other user must be able to read.
READS_ALL = ("--inh-caps=+dac_read_search", "--ambient-caps=+dac_read_search")


def at_work(stack: LocalStack, up: Running, run: TrainingRun, step: int = 5) -> str:
    """Wait until the job of this `up` has taken some steps; return the TrainJob's UID."""
    up.wait_for(lambda: run.step >= step, f"step {step}")
    return uid(stack, run.folder.parent.name)


def uid(stack: LocalStack, name: str) -> str:
    return str(stack.get("trainjob", "-n", NAMESPACE, name)["metadata"]["uid"])


SLOWLY = overrides(pace_seconds=1.0)
"""Makes the job last for two more `up`, on a busy host too; the weights do not depend on it."""


def test_up_follows_the_run_after_ctrl_c_and_completes_the_preemption_in_which_it_was_killed(
    stack: LocalStack, uninterrupted: TrainingRun
) -> None:
    run = stack.run_of("interrupted")
    with stack.declared(job("interrupted", {"at_step": 15, "notice": "0s"}), SLOWLY):
        up = stack.start("up", "--job", str(stack.job_file))
        submitted = at_work(stack, up, run)
        up.signal(signal.SIGINT)
        up.end(130)
        up = stack.start("up", "--job", str(stack.job_file))
        up.prints("cloud .* is terminated")
        up.signal(signal.SIGKILL)
        up.end(-9)
        assert run.step < JOB["steps"]
        stack.trainyard("up", "--job", str(stack.job_file))
    assert uid(stack, "interrupted") == submitted
    assert len(run.nodes) == 2
    assert run.sha256 == uninterrupted.sha256
    run.assert_no_checkpointed_step_was_lost()
    assert stack.trainyard("status").out.count(" ready ") == 5


def test_a_second_command_is_refused_while_one_is_at_work(stack: LocalStack) -> None:
    with hold(stack.state / f"{NAME}.lock"):
        refused = stack.trainyard("up", code=1)
    assert f"stack {NAME}\n  got:     held by process {os.getpid()} since" in refused.errors


@pytest.fixture
def other(tmp_path: Path) -> LocalStack:
    """A stack in a separate folder, which is never started."""
    return LocalStack(tmp_path, name="other")


def test_a_range_that_another_cluster_uses_is_refused(stack: LocalStack, other: LocalStack) -> None:
    before = Traces.of(other.folder, "other")
    refused = other.trainyard("up", code=3)
    assert "target.network.node_cidr" in refused.errors
    assert f"10.233.0.0/24 is in use on this host by ty-{NAME}" in refused.errors
    assert f"take down the cluster whose files are in {stack.run.parent}" in refused.errors
    assert not other.state.exists()
    assert not Traces.of(other.folder, "other").beyond(before)


@pytest.mark.parametrize("command", ["up", "down", "status"])
def test_a_user_other_than_root_is_refused(command: str, tmp_path: Path) -> None:
    stack = LocalStack(tmp_path, name="other", wrap=(*NOBODY, *READS_ALL))
    refused = stack.trainyard(command, code=3)
    assert "uid 65534" in refused.errors
    assert "run the command again with sudo" in refused.errors
    assert not stack.state.exists()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 64 MiB."""
    folder = tmp_path / "small"
    folder.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m", "tmpfs", str(folder)], check=True)
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


def test_a_full_disk_is_reported_before_anything_starts(small_disk: Path) -> None:
    stack = LocalStack(small_disk, name="other")
    stack.file.write_text(stack.file.read_text().replace("10.233.0.0/24", "10.234.0.0/24"))
    refused = stack.trainyard("up", code=3)
    assert "at least 5 GiB" in refused.errors
    assert "point TRAINYARD_STATE at another disk" in refused.errors
    assert not stack.state.exists()


def test_a_wrong_stack_file_is_reported_with_every_problem_and_its_line(other: LocalStack) -> None:
    text = other.file.read_text()
    changes = {"nodes: 1": "nodes: -1", "capacity: spot": "capacity: spit", "cohort: ": "cohorts: "}
    for right, wrong in changes.items():
        text = text.replace(right, wrong)
    other.file.write_text(text)
    refused = other.trainyard("up", code=2)
    assert "3 problems" in refused.errors
    assert f"{other.file.name}:" in refused.errors
    assert not other.state.exists()


def assert_nothing_remains(stack: LocalStack, before: Traces) -> None:
    """Assert that no trace of the cluster and of the engine remains."""
    assert not Traces.of(stack.folder, NAME).beyond(before)
    assert not stack.run.exists()
    assert not list(stack.temporary.iterdir())
    assert not list((stack.state / "pulumi" / "tmp").iterdir())


@pytest.mark.soak
@pytest.mark.parametrize(
    "moments", [(NODES, OPERATORS), (CONTROL_PLANE, DEFINITIONS, OPERATORS)], ids=["twice", "thrice"]
)
def test_up_recovers_however_often_it_is_killed(
    moments: Sequence[Moment], stack: LocalStack, uninterrupted: TrainingRun
) -> None:
    stack.trainyard("down")
    for moment in moments:
        kill_up(stack, moment)
    stack.trainyard("up")
    assert list(stack.trainyard("up").changes) == ["unchanged"]
    assert stack.trainyard("status").out.count(" ready ") == 5
    with stack.declared(job("afterwards")):
        stack.trainyard("run", str(stack.job_file))
    assert stack.run_of("afterwards").sha256 == uninterrupted.sha256


def test_down_with_jobs_in_the_queue_leaves_nothing_but_the_data_however_often_it_is_killed(
    stack: LocalStack, before: Traces
) -> None:
    for name in ("long", "long-too", "waits"):
        sleep = ["python3", "-c", "import time; time.sleep(900)"]
        stack.apply(manifests.train_job(name, runtime="torch-tcp", nodes=2, command=sleep))
    of_jobs = "--selector=jobset.sigs.k8s.io/jobset-name"
    pods = ("pods", "-n", NAMESPACE, of_jobs, "--field-selector=status.phase=Running")
    stack.wait_until(lambda: len(stack.names(*pods)) == 4, "four pods at work")
    first_node = stack.run / "nodes" / "spot-0"
    moments = ((kill_command, lambda: True), (kill_all, lambda: not processes_of(first_node)))
    for kill_some, reached in moments:
        down = stack.start("down")
        down.prints("destroy trial …")
        down.wait_for(reached, "first node that is gone")
        kill_some(stack, down)
        down.end()
    done = stack.trainyard("down")
    assert list(done.changes) == ["deleted"]
    assert f"checkpoints are retained in {stack.data}" in done.out
    assert_nothing_remains(stack, before)
    assert stack.run_of("calm").sha256


def test_a_second_down_has_nothing_to_do(stack: LocalStack) -> None:
    stack.trainyard("down")


def test_purge_removes_the_data_as_well(stack: LocalStack) -> None:
    folders = [stack.data, stack.data.with_name("audit")]
    assert all(folder.exists() for folder in folders)
    stack.trainyard("down", "--purge")
    assert not any(folder.exists() for folder in folders)
