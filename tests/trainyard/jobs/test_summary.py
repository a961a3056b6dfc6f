"""The summary at the end of a job: recovery times, steps, the next command, and the learning curve."""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.errors import TrainyardError
from infra.stackfile.job import JobSpec
from trainyard.jobs.history import JobHistory
from trainyard.jobs.summary import PLOT, Summary, draw
from trainyard.jobs.timeline import TimelineEvent, merged, table
from trainyard.stack.session import next_run

JOB = JobSpec(name="digits", team="research", runtime="torch-tcp", nodes=2, args=("--config", "digits"))


def step(time: float, number: int, attempt: int = 1) -> dict[str, Any]:
    return {"time": time, "event": "step", "step": number, "attempt": attempt}


def summary(lines: list[dict[str, Any]], *events: TimelineEvent, started: float = 0.0) -> Summary:
    return Summary("local", JOB, "run-001", Path(), started, JobHistory(list(events), lines))


def test_recovery_counts_from_the_nodes_death_to_the_next_attempts_first_step() -> None:
    lines = [step(10, 1), step(11, 2), step(29, 2, attempt=2), step(30, 3, attempt=2)]
    output = summary(lines, TimelineEvent(12, "cloud", "spot-1 is terminated"))
    assert output.recoveries == [("spot-1 is terminated", 17)]
    assert output.repeated_steps == 1


def test_with_a_preemption_notice_the_time_counts_from_the_notice() -> None:
    lines = [step(10, 1), step(15, 2, attempt=2)]
    events = [
        TimelineEvent(12, "cloud", "spot-1 gets a preemption notice"),
        TimelineEvent(27, "cloud", "spot-1 is terminated"),
    ]
    assert summary(lines, *events).recoveries == [("spot-1 gets a preemption notice", 3)]


def test_a_node_that_no_attempt_followed_has_no_recovery() -> None:
    assert summary([step(10, 1)], TimelineEvent(12, "cloud", "spot-1 is terminated")).recoveries == []


def test_the_first_step_is_timed_only_if_this_command_saw_it() -> None:
    assert summary([step(10, 1)], started=4).seconds_to_first_step == 6
    assert summary([step(10, 1)], started=11).seconds_to_first_step is None


def test_an_unfinished_run_is_continued_and_a_finished_one_is_followed_by_a_new_one(tmp_path: Path) -> None:
    assert next_run(tmp_path) == "run-001"
    (tmp_path / "run-001").mkdir()
    (tmp_path / "run-of-a-member").mkdir()
    assert next_run(tmp_path) == "run-001"
    (tmp_path / "run-001" / "final.json").write_text("{}")
    assert next_run(tmp_path) == "run-002"


@pytest.fixture
def finished(tmp_path: Path) -> Summary:
    """Make the summary of a run in a folder of the team, whose jobs may write everything below `team`."""
    run_dir = tmp_path / "team" / "digits" / "run-001"
    run_dir.mkdir(parents=True)
    lines = [{**step(number, number), "loss": 1.0, "accuracy": 0.5} for number in (1, 2)]
    (run_dir / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    return dataclasses.replace(summary(lines), run_dir=run_dir)


def test_the_learning_curve_replaces_a_link_and_not_its_target(finished: Summary) -> None:
    """A member's job can create a link, and on the embedded cluster's host the command runs as root."""
    secret = finished.run_dir.parents[2] / "secret"
    secret.write_text("the host's own")
    (finished.run_dir / PLOT).symlink_to(secret)
    os.utime(finished.run_dir / PLOT, (0, 0), follow_symlinks=False)
    picture = draw(finished)
    assert picture is not None and not picture.is_symlink()
    assert picture.read_bytes().startswith(b"\x89PNG")
    assert secret.read_text() == "the host's own"


@pytest.mark.parametrize("above", [0, 1])
def test_no_curve_is_written_through_a_folder_that_is_a_link(finished: Summary, above: int) -> None:
    outside = finished.run_dir.parents[2] / "outside"
    replaced = (finished.run_dir, *finished.run_dir.parents)[above]
    replaced.rename(outside)
    replaced.symlink_to(outside)
    with pytest.raises(TrainyardError, match="without links"):
        draw(finished)
    assert not list(outside.rglob("*.png"))


def test_a_run_without_a_step_has_no_curve() -> None:
    """A job that failed at its start has a summary too."""
    assert draw(summary([])) is None


def test_events_of_all_sources_share_one_clock() -> None:
    queue, cloud = TimelineEvent(2, "queue", "admitted"), TimelineEvent(1, "cloud", "gone")
    assert merged([queue], [cloud, queue]) == [cloud, queue]


def test_the_timeline_has_errors_as_they_were_written() -> None:
    console = Console(width=120, record=True)
    table([TimelineEvent(1, "job", "ends: [/src/pair.cc:545] Read error")]).show(console)
    assert "ends: [/src/pair.cc:545] Read error" in console.export_text()
