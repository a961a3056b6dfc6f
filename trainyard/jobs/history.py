"""The history of a job of the embedded cluster: events of its queue, its metrics and its nodes."""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from local.cluster.events import read_events
from trainyard.jobs import run_folder
from trainyard.jobs.state import JobState
from trainyard.jobs.timeline import TimelineEvent
from trainyard_train.contract import FILE as METRICS_FILE
from trainyard_train.contract import parse_line


class MetricsTail:
    """The lines that a run has added to its metrics since the last look."""

    def __init__(self, run_dir: Path) -> None:
        self._run_dir = run_dir
        self._offset = 0
        self._rest = b""

    def new_lines(self) -> list[dict[str, Any]]:
        """Return added lines; an incomplete line is returned by a later call.

        Raises TrainyardError if the file is a link, which a job of the team may have created.
        """
        read = run_folder.read_from(self._run_dir, METRICS_FILE, self._offset)
        self._offset += len(read)
        *whole, self._rest = (self._rest + read).split(b"\n")
        lines = map(parse_line, (text.decode(errors="replace") for text in whole))
        return [line for line in lines if line and _is_complete(line)]


@dataclass
class JobHistory:
    """A job's events, metrics and state so far."""

    events: list[TimelineEvent] = field(default_factory=list)
    lines: list[dict[str, Any]] = field(default_factory=list)
    """All lines of the run's metrics, oldest first."""
    state: JobState = field(default_factory=lambda: JobState("queued"))

    @property
    def step(self) -> int:
        """The last optimizer step that was reported; 0 before the first."""
        return next((line["step"] for line in reversed(self.lines) if line["event"] == "step"), 0)

    @property
    def num_steps(self) -> int | None:
        """Steps of the whole run; None before it has started."""
        return next((int(line["steps"]) for line in self.lines if "steps" in line), None)

    @property
    def measure(self) -> str:
        """The newest loss and speed, in words."""
        line = next((line for line in reversed(self.lines) if line["event"] == "step"), None)
        if line is None:
            return self.state.reason or self.state.phase
        return f"loss {line['loss']:.3f}, {line['samples_per_second']:.0f} samples/s, {self.state.phase}"

    @property
    def finished(self) -> dict[str, Any] | None:
        """The run's final event, with the hash of its final weights."""
        return next((line for line in reversed(self.lines) if line["event"] == "finished"), None)


class HistoryReader:
    """Reads a job's metrics and the nodes' events as they grow; `history` has all that it saw."""

    def __init__(self, run_dir: Path, node_events: Path) -> None:
        self._tail = MetricsTail(run_dir)
        self._node_events = node_events
        self._seen_node_events = 0
        self._since = time.time()
        self.history = JobHistory()

    def read(self, state: JobState, decisions: Sequence[str] = ()) -> list[TimelineEvent]:
        """Return the events that are new, with the queue's decisions that led to this state."""
        self.history.state = state
        of_queue = [TimelineEvent(time.time(), "queue", text) for text in decisions]
        new = sorted([*of_queue, *self._job_events(), *self._cloud_events()])
        self.history.events += new
        return new

    def _job_events(self) -> Iterator[TimelineEvent]:
        lines = self._tail.new_lines()
        for line in lines:
            text = describe(line, first_of_attempt=self._first_step_of_attempt(line))
            self.history.lines.append(line)
            if text:
                yield TimelineEvent(line["time"], "job", text)

    def _cloud_events(self) -> Iterator[TimelineEvent]:
        events = read_events(self._node_events)
        new, self._seen_node_events = events[self._seen_node_events :], len(events)
        for event in new:
            text = describe_phase(event.phase)
            if text and event.time >= self._since:
                yield TimelineEvent(event.time, "cloud", f"{event.node} {text}")

    def _first_step_of_attempt(self, line: dict[str, Any]) -> bool:
        if line["event"] != "step":
            return False
        return not any(
            seen["event"] == "step" and seen["attempt"] == line["attempt"]
            for seen in reversed(self.history.lines)
        )


def describe(line: dict[str, Any], *, first_of_attempt: bool = False) -> str:
    """Format one line of the metrics; empty for events that the bar already shows."""
    if line["event"] == "step" and not first_of_attempt:
        return ""
    return _EVENT_MESSAGES.get(line["event"], "").format(
        **{**line, "nodes": ", ".join(line.get("nodes", ()))}
    )


_EVENT_MESSAGES = {
    "step": "step {step}: the first of attempt {attempt}",
    "started": "attempt {attempt} starts on {nodes}",
    "resumed": "attempt {attempt} resumes at step {step} on {nodes}",
    "fabric": "{verdict}",
    "notice": "step {step}: preemption notice for {nodes}",
    "preempted": "exited with the checkpoint of step {step} committed",
    "checkpoint_failed": "checkpoint of step {step} failed: {error}",
    "failed": "attempt {attempt} ends at step {step}: {error}",
    "finished": "finished at step {step}, weights {sha256:.12}…",
}


def _is_complete(line: dict[str, Any]) -> bool:
    """Whether a line has all shown values of its event: a team's program may have written anything."""
    try:
        describe(line, first_of_attempt=True)
    except (KeyError, TypeError, ValueError):
        return False
    needed = {"time", "attempt"} | ({"accuracy"} if line["event"] == "evaluation" else set())
    numbers = needed | ({"step", "steps"} & line.keys())
    return all(isinstance(line.get(name), int | float) for name in numbers)


def describe_phase(phase: str) -> str:
    """Format one phase of a node's preemption or return; empty for phases that are not shown."""
    return {
        "notice": "gets a preemption notice",
        "drained": "has no pods left",
        "killed": "is terminated",
        "not-ready": "is detected as unreachable",
        "node-deleted": "is removed from the cluster",
        "returning": "comes back",
        "returned": "is Ready again",
    }.get(phase, "")
