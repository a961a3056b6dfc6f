"""Benchmark: time of a second `trainyard up` with nothing to change."""

from __future__ import annotations

from benchmarks.arena import JOB_FILE, arena
from benchmarks.figures import Figure, Repeats

REPEATS = 5


def measure() -> list[Figure]:
    """Bring the stack up once, then time further runs."""
    with arena() as bench:
        bench.trainyard("up", f"--job={JOB_FILE}")
        seconds = tuple(bench.trainyard("up", f"--job={JOB_FILE}") for _ in range(REPEATS))
    return [Figure("second `up`, nothing to change", Repeats("trainyard", "s", seconds), at_most=15)]
