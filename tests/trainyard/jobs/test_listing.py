"""`trainyard jobs`: the rows that list the jobs of a team."""

from __future__ import annotations

import io
import json
import os
import subprocess
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import islice
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.console import Console

from infra.clients.kubernetes import Object
from infra.platform.programs import program
from tests.trainyard.jobs.lists import admitted, condition, pod, research, train_job, workload
from trainyard.forms import Form
from trainyard.jobs import listing
from trainyard.jobs.key import JOB
from trainyard.jobs.listing import JobRow, changes, rows
from trainyard.jobs.timeline import brief


def row(record: Object, *conditions: dict[str, str], pods: Sequence[Object] = ()) -> JobRow:
    cluster = research(record, jobs=[train_job("digits", *conditions)])
    cluster.running = pods
    [found] = rows(cluster)
    return found


@pytest.mark.parametrize(
    ("record", "conditions", "state"),
    [
        (workload("digits"), [], "queued"),
        (workload("digits", *admitted()), [], "running"),
        (workload("digits", condition("Evicted"), active=False), [], "pausing"),
        (workload("digits", *admitted(), condition("Finished")), [condition("Failed")], "failed"),
    ],
)
def test_each_state(record: Object, conditions: list[dict[str, str]], state: str) -> None:
    pods = [pod("digits", 0, "spot-0"), pod("digits", 1, "spot-1")]
    assert row(record, *conditions, pods=pods).state == state


def test_a_failed_job_whose_pods_are_retained_is_held_and_not_running(tmp_path: Path) -> None:
    """Only the log of the program that holds the pods has this state."""
    hold = ["/bin/sh", "-c", program("hold_failed.sh"), "hold_failed", "1", "/bin/sh", "-c", "exit 3"]
    environment = {
        "TERMINATION_LOG": str(tmp_path / "message"),
        "TRAINYARD_JOB": "digits",
        "PATH": os.environ["PATH"],
    }
    output = subprocess.run(hold, env=environment, capture_output=True, text=True, check=False).stderr
    made: Any = train_job("digits")
    made["metadata"]["annotations"] = {JOB: json.dumps({"hold_on_failure": "30m"})}
    cluster = research(workload("digits", *admitted()), jobs=[made])
    cluster.running = [pod("digits", 0, "spot-0"), pod("digits", 1, "spot-1")]
    both = [each["metadata"]["name"] for each in cluster.running]
    cluster.logs = dict.fromkeys(both, "step 1\n")
    assert rows(cluster)[0].state == "running"
    cluster.logs = {both[0]: "step 1\n", both[1]: f"step 1\n{output}"}
    [found] = rows(cluster)
    assert (found.state, found.running_on) == ("held", ("spot-0", "spot-1"))
    assert found.reason == (
        "failed with exit code 3 on spot-1, held for 1 s from then on: trainyard shell digits;"
        " trainyard cancel digits"
    )
    made["metadata"]["annotations"] = {JOB: "{}"}
    cluster.logs = {}
    assert rows(cluster)[0].state == "running", "no log is read of a job that is not to be held"


def test_a_job_without_its_pods_is_paused() -> None:
    found = row(workload("digits", condition("Evicted", message="deactivated"), active=False))
    assert (found.state, found.reason) == ("paused", "deactivated")


@pytest.mark.parametrize("verbose", [False, True])
def test_kueues_own_message_is_shown_where_it_is_asked_for(
    verbose: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    said = (
        "couldn't assign flavors to pod set node: insufficient unused quota for nvidia.com/gpu in flavor"
        " spot, 2 more needed"
    )
    waiting = workload("digits", {**condition("QuotaReserved", message=said), "status": "False"})
    monkeypatch.setattr(listing, "MemberCluster", lambda _: research(waiting, jobs=[train_job("digits")]))
    session: Any = SimpleNamespace(console=Console(file=io.StringIO(), width=200))
    listing.show_jobs(session, Form.TEXT, watch=False, verbose=verbose)
    lines = session.console.file.getvalue().splitlines()[1:]
    assert "digits: spot lacks 2 free GPUs" in lines
    assert (f"digits: Kueue: {said}" in lines) == verbose


def test_a_row_has_what_the_queues_record_has() -> None:
    found = row(workload("digits", *admitted()), pods=[pod("digits", 1, "b"), pod("digits", 0, "a")])
    assert (found.team, found.accelerators, found.nodes, found.flavor) == ("research", 2, 2, "spot")
    assert (found.priority, found.running_on) == ("normal", ("a", "b"))


def test_a_job_that_the_queue_has_not_seen_is_listed_too() -> None:
    cluster = research(jobs=[train_job("new")])
    [found] = rows(cluster)
    assert (found.state, found.accelerators) == ("queued", None)


def test_the_newest_job_comes_last() -> None:
    jobs = [train_job("b", created="2026-11-24T00:02:00Z"), train_job("a", created="2026-11-24T00:01:00Z")]
    assert [each.name for each in rows(research(jobs=jobs))] == ["a", "b"]


def test_a_watch_shows_only_changes(monkeypatch: pytest.MonkeyPatch) -> None:
    polls: Iterator[Any] = iter([["one"], ["one"], ["two"]])
    monkeypatch.setattr(listing, "rows", lambda _: next(polls))
    monkeypatch.setattr(listing, "POLL_SECONDS", 0)
    seen: list[Any] = list(islice(changes(research()), 2))
    assert seen == [["one"], ["two"]]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0 s"), (68, "1 min 8 s"), (7200, "2 h"), (90061, "1 d 1 h")]
)
def test_a_span_of_time_in_two_units(seconds: int, text: str) -> None:
    assert brief(timedelta(seconds=seconds)) == text
