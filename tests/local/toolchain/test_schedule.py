"""The toolchain's schedule: order by dependencies, one artifact per lane, failures and interrupts."""

import threading
import time
from collections.abc import Mapping
from pathlib import Path

import psutil
import pytest

from engine.progress import Task
from infra.errors import TrainyardError
from local.toolchain.artifact import Action, Artifact, Lane, PlanStep
from local.toolchain.process import ProcessRunner
from local.toolchain.schedule import run_all
from tests.processes import TIMEOUT_SECONDS, wait_for


class TimedArtifact(Artifact):
    def __init__(self, name: str, lane: Lane = Lane.COMPILE) -> None:
        self.name = name
        self.lane = lane

    def plan(self) -> PlanStep:
        return PlanStep(self.name, Action.BUILD, "a test")

    def make(self, task: Task) -> None:
        raise NotImplementedError

    def paths(self) -> Mapping[str, Path]:
        return {}


def test_dependencies_are_made_first() -> None:
    below, above = TimedArtifact("below"), TimedArtifact("above", Lane.ASSEMBLE)
    made: list[str] = []
    run_all({above: {below}, below: set()}, lambda work: made.append(work.name), ProcessRunner())
    assert made == ["below", "above"]


def test_a_lane_makes_one_artifact_at_a_time_and_lanes_overlap() -> None:
    compiles, download = [TimedArtifact("a"), TimedArtifact("b")], TimedArtifact("c", Lane.NETWORK)
    lock, overlap = threading.Lock(), threading.Barrier(2)
    running: list[Artifact] = []
    seen: list[set[str]] = []

    def make(work: Artifact) -> None:
        with lock:
            running.append(work)
            seen.append({other.name for other in running})
        if work in (compiles[0], download):
            overlap.wait(TIMEOUT_SECONDS)
        time.sleep(0.1)  # another artifact must not begin meanwhile
        with lock:
            running.remove(work)

    run_all({work: set() for work in (*compiles, download)}, make, ProcessRunner())
    assert not any({"a", "b"} <= names for names in seen)


def test_a_failure_ends_the_programs_of_all_others_and_is_raised() -> None:
    runner = ProcessRunner()
    slow, broken = TimedArtifact("slow"), TimedArtifact("broken", Lane.NETWORK)
    started = threading.Event()

    def make(work: Artifact) -> None:
        if work is slow:
            runner.run(["sh", "-c", "echo on; sleep 600"], what="slow", on_line=lambda _: started.set())
        started.wait(TIMEOUT_SECONDS)
        runner.run(["sh", "-c", "echo no luck; exit 3"], what="broken")

    begun = time.monotonic()
    with pytest.raises(TrainyardError, match="no luck"):
        run_all({slow: set(), broken: set()}, make, runner)
    assert time.monotonic() - begun < 500


def test_an_interrupt_ends_the_programs_and_their_children() -> None:
    runner = ProcessRunner()
    pids: list[str] = []

    def interrupt(line: str) -> None:
        pids.append(line)
        raise KeyboardInterrupt

    def make(_: object) -> None:
        runner.run(["sh", "-c", "sleep 600 & echo $!; wait"], what="slow", on_line=interrupt)

    with pytest.raises(KeyboardInterrupt):
        run_all({TimedArtifact("slow"): set()}, make, runner)
    wait_for(lambda: has_ended(int(pids[0])))


def has_ended(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
