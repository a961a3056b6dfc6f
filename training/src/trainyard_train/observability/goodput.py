"""Computes goodput from a run's metrics: seconds of productive steps, and of repeated steps, checkpoints,
evaluation, startup and waiting.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Goodput:
    """Seconds of a run, from the start of its first attempt to the final event of its last.

    Each second is counted once, so that they add up to the whole.
    """

    productive: float = 0
    """Seconds of steps that are in the final weights."""
    repeated: float = 0
    """Seconds of steps that were not checkpointed before a failure, and repeated."""
    checkpoint: float = 0
    """Seconds for which the training was blocked by a save: to copy, or at the end of an attempt until it was
    durable."""
    evaluation: float = 0
    """Seconds of evaluation on held-out data."""
    startup: float = 0
    """Seconds from the start of an attempt's process to its first step, loading included."""
    waiting: float = 0
    """Seconds between attempts, such as in a queue, and from a rank's failure until it was noticed."""

    @property
    def total(self) -> float:
        """Seconds of all kinds together."""
        return float(sum(asdict(self).values()))

    @property
    def share(self) -> float:
        """Part of the time that made progress, 0 to 1; 1 for a run that has not begun."""
        return self.productive / self.total if self.total else 1.0


_KINDS = {
    "fabric": "startup",
    "evaluation": "evaluation",
    "checkpoint_failed": "checkpoint",
    "notice": "checkpoint",
    "preempted": "checkpoint",
    "finished": "checkpoint",
    "failed": "waiting",
}
_REMARKS = frozenset({"stalled", "straggler", "clock"})
"""Events that are logged during a step; their time counts as that step's."""


def goodput(lines: Sequence[dict[str, Any]]) -> Goodput:
    """Account for every second of a run's metrics.

    The time before a line belongs to the line's event. A clock that was set back costs nothing.
    """
    spent = Goodput()
    last_attempt = {line["step"]: line["attempt"] for line in lines if line["event"] == "step"}
    previous: float | None = None
    last_kind = "productive"
    for line in lines:
        event, now = line["event"], line["time"]
        seconds = max(0.0, now - previous) if previous is not None else line.get("startup_seconds", 0.0)
        previous = now
        if event in {"started", "resumed"}:
            startup = min(seconds, line.get("startup_seconds", 0.0))
            spent.startup += startup
            spent.waiting += seconds - startup
        elif event == "step":
            last_kind = "productive" if last_attempt[line["step"]] == line["attempt"] else "repeated"
            _add(spent, last_kind, seconds)
        elif event in _REMARKS:
            _add(spent, last_kind, seconds)
        elif event == "checkpoint" and line["reason"] == "interval":  # written during training steps
            blocked = min(line["blocked_seconds"], getattr(spent, last_kind) + seconds)
            spent.checkpoint += blocked
            _add(spent, last_kind, seconds - blocked)
        else:
            _add(spent, _KINDS.get(event, "checkpoint"), seconds)
    return spent


def _add(spent: Goodput, kind: str, seconds: float) -> None:
    setattr(spent, kind, getattr(spent, kind) + seconds)
