"""A job's history: only complete lines, and each event once."""

import json
import os
from pathlib import Path
from typing import Any

import pytest

from infra.errors import TrainyardError
from tests.tables import table
from trainyard.jobs.history import HistoryReader, MetricsTail, describe
from trainyard.jobs.state import JobState


def line(event: str, attempt: int = 1, **values: Any) -> dict[str, Any]:
    return {"time": 100.0, "event": event, "attempt": attempt, **values}


def append(path: Path, *lines: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a") as file:
        file.writelines(json.dumps(item) + "\n" for item in lines)


def test_an_incomplete_line_is_read_at_the_next_poll(tmp_path: Path) -> None:
    tail = MetricsTail(tmp_path)
    text = json.dumps(line("step", step=1))
    (tmp_path / "metrics.jsonl").write_text(text[:10])
    assert tail.new_lines() == []
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write(text[10:] + "\n")
    assert [item["step"] for item in tail.new_lines()] == [1]
    assert tail.new_lines() == []


@pytest.mark.parametrize("foreign", [line(**each) for each in table(__file__, "foreign_lines")], ids=str)
def test_a_line_of_another_program_is_ignored(tmp_path: Path, foreign: dict[str, Any]) -> None:
    append(tmp_path / "metrics.jsonl", foreign)
    append(tmp_path / "metrics.jsonl", line("step", step=2))
    assert [item["step"] for item in MetricsTail(tmp_path).new_lines()] == [2]


@pytest.mark.parametrize("planted", ["link", "FIFO", "folder"])
def test_metrics_are_read_from_no_link(tmp_path: Path, planted: str) -> None:
    """A job could link to another team's run, whose curve the command would then draw as root."""
    others, own = tmp_path / "speech" / "asr" / "run-001", tmp_path / "research" / "digits" / "run-001"
    append(others / "metrics.jsonl", line("step", step=1))
    own.parent.mkdir(parents=True)
    if planted == "folder":
        own.symlink_to(others)
    else:
        own.mkdir()
    if planted == "link":
        (own / "metrics.jsonl").symlink_to(others / "metrics.jsonl")
    if planted == "FIFO":
        os.mkfifo(own / "metrics.jsonl")
    with pytest.raises(TrainyardError, match=r"without links\n.*team research"):
        MetricsTail(own).new_lines()


RUNNING = JobState("running", "spot")


def reader_of(tmp_path: Path) -> HistoryReader:
    return HistoryReader(tmp_path, tmp_path / "events.jsonl")


def test_the_first_step_of_each_attempt_is_reported_and_the_others_are_not(tmp_path: Path) -> None:
    reader = reader_of(tmp_path)
    steps = [line("step", step=1), line("step", step=2), line("step", attempt=2, step=2)]
    append(tmp_path / "metrics.jsonl", *steps)
    output = [event.text for event in reader.read(RUNNING) if event.actor == "job"]
    assert output == ["step 1: the first of attempt 1", "step 2: the first of attempt 2"]
    assert reader.history.step == 2


def test_node_events_before_this_job_are_not_reported(tmp_path: Path) -> None:
    append(tmp_path / "events.jsonl", {"node": "spot-0", "phase": "killed", "time": 1.0})
    reader = reader_of(tmp_path)
    assert reader.read(RUNNING) == []
    append(tmp_path / "events.jsonl", {"node": "spot-1", "phase": "killed", "time": 1e12})
    assert [event.text for event in reader.read(RUNNING)] == ["spot-1 is terminated"]


@pytest.mark.parametrize("event", ["evaluation", "checkpoint", "step"])
def test_routine_events_are_shown_only_by_the_bar(event: str) -> None:
    assert describe(line(event, step=3)) == ""
