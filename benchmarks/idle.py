"""Benchmark: CPU time and memory of all processes of the idle embedded cluster."""

from __future__ import annotations

import time

import psutil

from benchmarks.arena import Arena, arena
from benchmarks.figures import Figure, Repeats

SETTLE_SECONDS = 60.0
WINDOW_SECONDS = 60.0
REPEATS = 3


def measure() -> list[Figure]:
    """Sample CPU time and proportional memory of every process of the cluster, operators included."""
    with arena() as bench:
        bench.trainyard("up")
        time.sleep(SETTLE_SECONDS)
        shares = tuple(_cpu_share(bench) for _ in range(REPEATS))
        memory = (sum(process.memory_full_info().pss for process in _processes(bench)) / 2**30,)
    return [
        Figure("idle cluster, CPU", Repeats("embedded cluster", "% of a core", shares), at_most=15),
        Figure("idle cluster, memory", Repeats("embedded cluster", "GiB", memory), at_most=3),
    ]


def _cpu_share(bench: Arena) -> float:
    """CPU time of all processes over a window, in percent of one core."""
    before = _cpu_seconds(bench)
    time.sleep(WINDOW_SECONDS)
    after = _cpu_seconds(bench)
    spent = sum(seconds - before.get(pid, 0.0) for pid, seconds in after.items())
    return 100 * spent / WINDOW_SECONDS


def _cpu_seconds(bench: Arena) -> dict[int, float]:
    return {
        process.pid: sum(process.cpu_times()[:2]) for process in _processes(bench) if process.is_running()
    }


def _processes(bench: Arena) -> list[psutil.Process]:
    """The cluster's node processes and all that they started: containers too (runc's are containerd's)."""
    roots = [
        process
        for process in psutil.process_iter(["cmdline"])
        if any(str(bench.state) in word for word in process.info["cmdline"] or ())
    ]
    return list({child for root in roots for child in (root, *root.children(recursive=True))})
