"""`Cadence`: decides when the next checkpoint is due, by Young's interval from the measured cost of a
checkpoint and the mean time between failures.

The interval is √(2·δ·M) seconds: δ is the training time that a checkpoint costs, measured during the run, and
M is the mean time between failures, from an expected value and the run's earlier attempts. This first-order
optimum (Young 1974) loses the least time. Higher orders (Daly 2006) matter only where a checkpoint takes a
large part of M.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any


def young(cost_seconds: float, mtbf_seconds: float) -> float:
    """The interval between two checkpoints in seconds."""
    return math.sqrt(2 * cost_seconds * mtbf_seconds)


def measured_mtbf(lines: Iterable[dict[str, Any]], expected_seconds: float) -> float:
    """Mean time between losses of a run in seconds, from its metrics.

    A failure is an attempt that ended without a final event: after a preemption notice no step is lost. The
    expectation counts like one failure that was seen after that long, so a young run has an answer too.
    """
    spans: dict[int, list[float]] = {}
    orderly = set()
    for line in lines:
        spans.setdefault(line["attempt"], []).append(line["time"])
        if line["event"] in {"preempted", "finished"}:
            orderly.add(line["attempt"])
    seconds = sum(max(times) - min(times) for times in spans.values())
    return (expected_seconds + seconds) / (1 + len(spans.keys() - orderly))


@dataclass
class Cadence:
    """Decides when the next checkpoint is due: on rank 0, which broadcasts it with the next step."""

    mtbf_seconds: float
    clock: Any = time.monotonic
    saved_at: float = field(init=False)
    _step_seconds: float | None = field(default=None, init=False)
    """Seconds of a step that no save slows down, smoothed."""
    _cost: float = field(default=0, init=False)
    _under_way: float = field(default=0, init=False)

    def __post_init__(self) -> None:
        self.saved_at = self.clock()

    @property
    def interval_seconds(self) -> float:
        """From one checkpoint to the next; before the first is measured, ten steps."""
        return young(self._cost, self.mtbf_seconds) if self._cost else 10 * (self._step_seconds or 0)

    def step(self, seconds: float, saving: bool) -> None:
        """Take note of a step and whether a checkpoint was written meanwhile."""
        if saving:
            self._under_way += max(0, seconds - (self._step_seconds or seconds))
        else:
            before = self._step_seconds
            self._step_seconds = seconds if before is None else 0.9 * before + 0.1 * seconds

    def begun(self, blocked_seconds: float) -> None:
        """Note that a save has begun, and the seconds for which its copy blocked the training."""
        self.saved_at = self.clock()
        self._under_way = blocked_seconds

    def durable(self) -> None:
        """Record the cost of a finished save."""
        self._cost = self._under_way if not self._cost else (self._cost + self._under_way) / 2

    def due(self) -> bool:
        """Whether a checkpoint is due now."""
        return self._step_seconds is not None and self.clock() - self.saved_at >= self.interval_seconds
