"""Estimates the earliest and the latest start of a pending job from free accelerators, the running jobs, and
the durations of ended jobs.

Earliest: no other job is ahead, and running jobs end at the 10th percentile of the durations. Latest: all
jobs ahead start first and run for the 90th percentile, and running jobs end there or at their time limit,
whichever is sooner. The latest start is infinite if it depends on a job that neither bounds.
"""

import heapq
import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import quantiles

ENOUGH_JOBS = 5
"""Minimum number of ended jobs for an estimate."""


@dataclass(frozen=True)
class Holder:
    """A running job of one flavor."""

    accelerators: int
    seconds: float
    """Seconds that the job has run."""
    limit: float = math.inf
    """Time limit of the job in the queue, in seconds."""


@dataclass(frozen=True)
class Lengths:
    """Durations of the team's ended jobs, in seconds."""

    number: int = 0
    shortest: float = 0.0
    """Tenth percentile; 0 if too few jobs have ended."""
    longest: float = math.inf
    """Ninetieth percentile; infinite if too few jobs have ended."""

    @staticmethod
    def of(seconds: Sequence[float]) -> "Lengths":
        """Summarise the lengths of ended jobs."""
        if len(seconds) < ENOUGH_JOBS:
            return Lengths(len(seconds))
        tenths = quantiles(seconds, n=10, method="inclusive")
        return Lengths(len(seconds), tenths[0], tenths[-1])


@dataclass(frozen=True)
class PoolCapacity:
    """Capacity of a flavor, as far as the user sees it."""

    free: int
    holders: tuple[Holder, ...] = ()
    others: int = 0
    """Accelerators of jobs that the user cannot see."""


def earliest(room: PoolCapacity, needed: int, lengths: Lengths) -> float:
    """Return seconds from now; infinite where the flavor has not as many accelerators."""
    ends = [(max(0.0, lengths.shortest - each.seconds), each.accelerators) for each in room.holders]
    return _start(room.free, [*ends, (0.0, room.others)], [], needed)


def latest(room: PoolCapacity, needed: int, ahead: Sequence[int], lengths: Lengths) -> float:
    """Return seconds from now; infinite where nothing limits it.

    Args:
        ahead: accelerators of each job that is ahead in the queue.
    """
    ends = [(_longest(each, lengths) - each.seconds, each.accelerators) for each in room.holders]
    waiting = [(number, lengths.longest) for number in ahead]
    return _start(room.free, [*ends, (math.inf, room.others)], waiting, needed)


def _longest(holder: Holder, lengths: Lengths) -> float:
    """Maximum seconds of a running job; only its time limit if it has run longer than the ended jobs."""
    usual = lengths.longest if holder.seconds < lengths.longest else math.inf
    return min(holder.limit, usual)


def _start(
    free: int, ends: Sequence[tuple[float, int]], ahead: Sequence[tuple[int, float]], needed: int
) -> float:
    """Simulate jobs that start in order, each when enough accelerators are free; return the last start."""
    running, now = list(ends), 0.0
    heapq.heapify(running)
    for accelerators, seconds in (*ahead, (needed, 0.0)):
        while free < accelerators:
            if not running:
                return math.inf
            end, freed = heapq.heappop(running)
            now, free = max(now, end), free + freed
        free -= accelerators
        heapq.heappush(running, (now + seconds, accelerators))
    return now
