"""The summary's figures come from the run's own record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Console

from infra.spec.job import JobSpec
from trainyard.follow import JobHistory
from trainyard.session import next_run
from trainyard.summary import Summary
from trainyard.timeline import TimelineEvent, merged, table

JOB = JobSpec(name="digits", team="research", runtime="torch-none", num_nodes=2, config="digits")


def step(time: float, number: int, attempt: int = 1) -> dict[str, Any]:
    return {"time": time, "event": "step", "step": number, "attempt": attempt}


def summary(lines: list[dict[str, Any]], *events: TimelineEvent, started: float = 0.0) -> Summary:
    return Summary("local", JOB, "run-001", Path(), started, JobHistory(list(events), lines))


def test_recovery_counts_from_the_nodes_death_to_the_next_attempts_first_step() -> None:
    lines = [step(10, 1), step(11, 2), step(29, 2, attempt=2), step(30, 3, attempt=2)]
    output = summary(lines, TimelineEvent(12, "cloud", "spot-1 is gone"))
    assert output.recoveries == [("spot-1 is gone", 17)]
    assert output.repeated_steps == 1


def test_with_a_notice_the_clock_starts_at_the_notice() -> None:
    lines = [step(10, 1), step(15, 2, attempt=2)]
    events = [
        TimelineEvent(12, "cloud", "spot-1 gets a preemption notice"),
        TimelineEvent(27, "cloud", "spot-1 is gone"),
    ]
    assert summary(lines, *events).recoveries == [("spot-1 gets a preemption notice", 3)]


def test_a_node_that_no_attempt_followed_has_no_recovery() -> None:
    assert summary([step(10, 1)], TimelineEvent(12, "cloud", "spot-1 is gone")).recoveries == []


def test_the_first_step_is_timed_only_if_this_command_saw_it() -> None:
    assert summary([step(10, 1)], started=4).seconds_to_first_step == 6
    assert summary([step(10, 1)], started=11).seconds_to_first_step is None


def test_an_unfinished_run_is_continued_and_a_finished_one_is_followed_by_a_new_one(tmp_path: Path) -> None:
    assert next_run(tmp_path) == "run-001"
    (tmp_path / "run-001").mkdir()
    assert next_run(tmp_path) == "run-001"
    (tmp_path / "run-001" / "final.json").write_text("{}")
    assert next_run(tmp_path) == "run-002"


def test_events_of_all_sources_share_one_clock() -> None:
    queue, cloud = TimelineEvent(2, "queue", "admitted"), TimelineEvent(1, "cloud", "gone")
    assert merged([queue], [cloud, queue]) == [cloud, queue]


def test_the_timeline_tells_errors_as_they_were_written() -> None:
    console = Console(width=120, record=True)
    console.print(table([TimelineEvent(1, "job", "ends: [/src/pair.cc:545] Read error")]))
    assert "ends: [/src/pair.cc:545] Read error" in console.export_text()
