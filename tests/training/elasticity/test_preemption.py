"""Preemption notices by SIGTERM: a rank saves and exits in time, whatever its main thread does."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import TIMEOUT_SECONDS, capture
from tests.training.launch import Ranks, events, reached, settings, start_agent
from trainyard_train import train
from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.config import GRACE_VARIABLE, NOTICE_VARIABLE, TimeoutConfig
from trainyard_train.elasticity.preemption import listen

PROGRAM = """
import ctypes, os, sys, time
if sys.argv[1] == "threads":
    import numpy
    numpy.ones((300, 300)) @ numpy.ones((300, 300))  # starts threads that may get signals
    assert len(os.listdir("/proc/self/task")) > 1
from trainyard_train.elasticity.preemption import PreemptionNotice
notice = PreemptionNotice(exit_seconds=float(sys.argv[2]))
notice.watch()
if sys.argv[1] in {"stepping", "hanging"}:
    notice.begin_steps()
print("ready", flush=True)
if sys.argv[1] == "stepping":
    while not notice.requested:
        notice.sleep(600)
    sys.exit(0)
if sys.argv[1] == "in C":
    ctypes.CDLL(None).read(os.pipe()[0], ctypes.create_string_buffer(1), 1)
time.sleep(600)  # as in a collective that never returns
"""


def deliver(mode: str, *signals: signal.Signals, exit_seconds: float = 600) -> tuple[int, str]:
    """Run the program and send it signals, each after it has reported the one before.

    Returns its exit code and its output. It ends in time only by the notice: all its waits take longer.
    """
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, mode, str(exit_seconds)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    assert process.stdout.readline() == "ready\n"
    output = ""
    for number in signals:
        process.send_signal(number)
        output += process.stderr.readline()
    _, rest = process.communicate(timeout=TIMEOUT_SECONDS)
    return process.returncode, output + rest


@pytest.mark.parametrize("mode", ["starting", "threads", "in C"])
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_before_the_first_step_it_exits_at_once_to_be_run_again(number: signal.Signals, mode: str) -> None:
    code, output = deliver(mode, number)
    assert code == 75
    assert f"{number.name} before the first step" in output


def test_between_steps_the_loop_is_notified_at_once() -> None:
    code, output = deliver("stepping", signal.SIGTERM)
    assert code == 0
    assert "saving at the end of this step" in output


def test_a_main_thread_that_hangs_does_not_outlive_the_grace() -> None:
    code, output = deliver("hanging", signal.SIGTERM, exit_seconds=0.5)
    assert code == 1
    assert "no checkpoint within 0.5 s" in output
    assert "time.sleep" in output or "Current thread" in output or "Thread" in output


def test_it_exits_at_once_on_a_second_signal() -> None:
    code, output = deliver("hanging", signal.SIGINT, signal.SIGINT)
    assert code == 1
    assert "second signal" in output


def watching(program: str) -> tuple[int, str]:
    """Run a program that watches for notices; return its exit code and its output."""
    begin = """
import os, signal, time
from trainyard_train.elasticity.preemption import PreemptionNotice
notice = PreemptionNotice(exit_seconds=600)
notice.watch()
notice.begin_steps()
"""
    ended = capture([sys.executable, "-c", begin + program], timeout=TIMEOUT_SECONDS)
    return ended.returncode, ended.stdout + ended.stderr


def test_a_signal_to_a_forked_child_does_not_reach_its_parent() -> None:
    code, output = watching("""
if not (child := os.fork()):
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)
print("ended by", -os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
time.sleep(0.2)
print("requested", notice.requested)
""")
    assert (code, output) == (0, f"ended by {signal.SIGTERM.value}\nrequested False\n")


def test_after_the_run_the_previous_handlers_are_restored() -> None:
    code, output = watching("""
notice.stop()
assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
assert signal.set_wakeup_fd(-1) == -1
os.kill(os.getpid(), signal.SIGTERM)
time.sleep(600)
""")
    assert (code, output) == (-signal.SIGTERM, "")


def test_an_event_loop_that_handles_signals_does_not_suppress_the_notice() -> None:
    code, output = watching("""
import asyncio
async def main():
    heard = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGUSR1, heard.set)
    os.kill(os.getpid(), signal.SIGUSR1)
    await heard.wait()
    os.kill(os.getpid(), signal.SIGTERM)
    while not notice.requested:
        await asyncio.sleep(0.01)
asyncio.run(main())
""")
    assert code == 0
    assert output.count("SIGTERM: saving at the end of this step") == 1


@pytest.mark.parametrize(
    ("environment", "notices", "seconds"),
    [
        ({}, "none", 10),
        ({GRACE_VARIABLE: ""}, "none", 10),
        ({}, "aws", 110),
        ({}, "gcp", 20),
        ({GRACE_VARIABLE: "15"}, "none", 11.25),
        ({GRACE_VARIABLE: "120"}, "none", 115),
        ({GRACE_VARIABLE: "300"}, "aws", 295),
    ],
)
def test_the_exit_timeout_follows_from_the_pods_grace_or_the_clouds_notice(
    environment: dict[str, str], notices: str, seconds: float
) -> None:
    assert TimeoutConfig().until_exit(notices, environment) == seconds
    assert TimeoutConfig(leave=5).until_exit(notices, environment) == 5


def test_a_cloud_without_a_metadata_service_is_refused_and_not_polled_as_another() -> None:
    for ask in (lambda: TimeoutConfig().until_exit("coreweave", {}), lambda: listen(10, "coreweave")):
        with pytest.raises(ConfigError, match="notices: got 'coreweave'; allowed: aws, gcp, azure, or none"):
            ask()


@pytest.mark.parametrize(
    ("grace", "message"),
    [
        ("30", r"timeouts.leave: got 26; allowed: at most 25, since this pod is killed 30 s after SIGTERM"),
        ("5m", r"TRAINYARD_GRACE_SECONDS: got '5m'; allowed: a whole number of seconds"),
    ],
)
def test_more_time_than_the_pod_has_is_refused(grace: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        TimeoutConfig(leave=26).until_exit(environment={GRACE_VARIABLE: grace})


def reported_while_training(run_dir: Path, grace: str, seconds: float) -> tuple[int | None, str]:
    """Preempt a node of two ranks, whose checkpoint takes `seconds`, in a pod with this grace period."""
    slow = {"checkpoint.every_steps": 1000, "checkpoint.pace_seconds": seconds, "pace_seconds": 0.1}
    arguments = settings(run_dir, **slow, **{"timeouts.leave": "null", "steps": 1000})
    node = Ranks([start_agent(2, arguments, {GRACE_VARIABLE: grace, NOTICE_VARIABLE: "3"})])
    node.until(lambda: reached(run_dir, 2))
    node.send(0, signal.SIGTERM)
    [ended] = node.wait()
    return ended


def test_a_save_has_the_pods_grace_and_warns_that_a_spot_node_gives_less(tmp_path: Path) -> None:
    code, output = reported_while_training(tmp_path, "120", 3)
    assert code == 75, output
    [saved] = events(tmp_path, "checkpoint")
    assert saved["reason"] == "notice"
    assert saved["seconds"] >= 3
    assert output.count("spot nodes here are terminated 3 s after their preemption notice") == 1


def test_a_save_that_outlasts_the_pods_grace_is_abandoned_before_the_grace_ends(tmp_path: Path) -> None:
    code, output = reported_while_training(tmp_path, "2", 60)
    assert code == 1, output
    assert "no checkpoint within 1.5 s of the notice" in output
    assert not events(tmp_path, "checkpoint")


def test_torchrun_lets_its_workers_save_for_as_long(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def execv(*_: object) -> None:
        raise InterruptedError(os.environ["TORCH_ELASTIC_SHUTDOWN_TIMEOUT"])

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setenv("PET_NNODES", "1:2")
    monkeypatch.setenv(GRACE_VARIABLE, "120")
    monkeypatch.delenv("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", raising=False)
    with pytest.raises(InterruptedError, match="115"):
        train.main(["--set", f"run_dir={tmp_path}"])
