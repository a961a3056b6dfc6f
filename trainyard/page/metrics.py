"""Reads the metrics of a run for the page: how far it is, what happened, its figures."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from infra.errors import TrainyardError
from trainyard.jobs import run_folder
from trainyard.jobs.history import describe
from trainyard.jobs.key import JobKey
from trainyard.jobs.node_pods import NodePod
from trainyard.stack.remote import Remote
from trainyard.stack.session import Session
from trainyard_train.contract import FILE, parse_line
from trainyard_train.observability.goodput import goodput
from trainyard_train.observability.report import interruptions

METRICS_BYTES = 4_000_000
"""Most bytes of a run's metrics that are read at a look, its newest: some 20,000 steps."""
PACE_STEPS = 50
"""Last steps of an attempt whose pace the estimated end has."""
Lines = list[dict[str, Any]]


@dataclass(frozen=True)
class Progress:
    """How far a run is, by its own metrics."""

    step: int
    steps: int | None
    """Steps of the whole run, where it says them."""
    quiet: timedelta
    """Time since the last step."""
    ends: datetime | None
    """When it ends at the pace of its last steps."""

    @property
    def share(self) -> float | None:
        return min(1.0, self.step / self.steps) if self.steps else None

    def __str__(self) -> str:
        of = f" of {self.steps:,}" if self.steps else ""
        return f"step {self.step:,}{of}"


def read_metrics(session: Session, key: JobKey, run: str, pods: Sequence[NodePod]) -> Lines:
    """Read the newest lines of a run's metrics: from this host's disk, else in the pod of the first rank.

    Raises:
        TrainyardError: the user may not run a program in the pod.
    """
    if run and session.is_on_host:
        return on_host(session, key, run)
    first = next((pod for pod in pods if pod.is_running), None)
    if first is None:
        return []
    script = f'tail -c {METRICS_BYTES} "$TRAINYARD_RUN_DIR/{FILE}" 2>/dev/null; true'
    return _parsed(Remote(session.api).run(first, ["/bin/sh", "-c", script]).output.encode())


def on_host(session: Session, key: JobKey, run: str) -> Lines:
    """Read the newest lines of a run's metrics on this host's disk; none where there is no such file."""
    folder = session.run_root(key.team, key.name) / run
    try:
        return _parsed(run_folder.read_from(folder, FILE, 0)[-METRICS_BYTES:])
    except TrainyardError:  # the job has put something else in its place
        return []


def _parsed(text: bytes) -> Lines:
    """Return whole lines that have what the page reads: a team's program may have written anything."""
    found = [line for each in text.splitlines() if (line := parse_line(each.decode(errors="replace")))]
    return [line for line in found if _is_usable(line)]


def _is_usable(line: Mapping[str, Any]) -> bool:
    needed = {"time", "attempt"} | ({"step"} if line["event"] in {"step", "started", "resumed"} else set())
    return all(type(line.get(name)) in {int, float} for name in needed)


def progress_of(metrics: Sequence[Mapping[str, Any]]) -> Progress | None:
    """Return how far a run is; None before its first step."""
    steps = [line for line in metrics if line["event"] == "step"]
    if not steps:
        return None
    last = steps[-1]
    total = next((line["steps"] for line in metrics if isinstance(line.get("steps"), int)), None)
    now, ends = datetime.now(UTC), None
    quiet = now - datetime.fromtimestamp(last["time"], UTC)
    recent = [line for line in steps[-PACE_STEPS:] if line["attempt"] == last["attempt"]]
    done = last["step"] - recent[0]["step"]
    if total and done > 0:
        pace = (last["time"] - recent[0]["time"]) / done
        ends = now + timedelta(seconds=pace * max(0, total - last["step"]))
    return Progress(last["step"], total, quiet, ends)


def events_of(metrics: Sequence[dict[str, Any]]) -> list[tuple[str, str]]:
    """Return clock and text of what happened in a run, the newest first."""
    found, attempts = [], set()
    for line in metrics:
        is_first = line["event"] == "step" and line["attempt"] not in attempts
        attempts |= {line["attempt"]} if line["event"] == "step" else set()
        try:
            text = describe(line, first_of_attempt=is_first)
        except (KeyError, TypeError, ValueError):
            continue
        if text:
            clock = datetime.fromtimestamp(line["time"]).strftime("%H:%M:%S")
            found.append((clock, text))
    return found[::-1]


def figures_of(metrics: Lines) -> list[tuple[str, str]]:
    """Return the figures of a run, as name and value."""
    steps = [line for line in metrics if line["event"] == "step"]
    if not steps:
        return []
    last, lost = steps[-1], interruptions(metrics)
    found = []
    if type(last.get("loss")) in {int, float}:
        found.append(("loss", f"{last['loss']:.4g}"))
    if type(last.get("samples_per_second")) in {int, float}:
        found.append(("samples/s", f"{last['samples_per_second']:,.0f}"))
    found.append(("attempts", str(len({line["attempt"] for line in metrics}))))
    found.append(("steps repeated", str(sum(max(0, each.step - each.resumed_step) for each in lost))))
    try:
        found.append(("useful", f"{goodput(metrics).share:.1%}"))
    except (KeyError, TypeError, ValueError, ZeroDivisionError):
        return found  # another program's metrics
    return found
