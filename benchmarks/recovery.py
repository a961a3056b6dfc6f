"""Benchmark: time from a preemption notice, or from the kill of a node without notice, to the job's next new
step.
"""

from __future__ import annotations

import time

from benchmarks.arena import Arena, arena
from benchmarks.figures import Figure, Repeats
from trainyard.jobs.key import JobKey
from trainyard.jobs.manifest import manifest
from trainyard.jobs.state import Jobs
from trainyard.stack.session import next_run

REPEATS = 3
NOTICE_SECONDS = 15.0


def measure() -> list[Figure]:
    """Preempt a node of a running job, with a preemption notice and without, several times."""
    with arena() as bench:
        bench.trainyard("up")
        noticed = tuple(_preempt_one(bench, NOTICE_SECONDS) for _ in range(REPEATS))
        silent = tuple(_preempt_one(bench, None) for _ in range(REPEATS))
    return [
        Figure("notice given → first new step", Repeats("trainyard", "s", noticed), at_most=20),
        Figure("node killed without notice → first new step", Repeats("trainyard", "s", silent), at_most=40),
    ]


def _preempt_one(bench: Arena, notice_seconds: float | None) -> float:
    """Run the job until it trains, and preempt a node; returns seconds until the next attempt's first step.

    With a preemption notice the time counts from the notice: the job may continue before the node ends.
    """
    session = bench.session
    longer = (*(bench.job.args or ()), "--set", "steps=2000")
    job = bench.job.model_copy(update={"args": longer})
    key = JobKey(job.team, job.name)
    submitted = time.time()
    jobs = Jobs(session.api)
    jobs.submit(manifest(job, next_run(session.run_root(job.team, job.name))))
    bench.first_step_after(submitted)
    node = jobs.state(key).nodes[-1]
    record = session.cluster.preempt(node, notice_seconds=notice_seconds)
    preempted = record.events[0].time
    seconds = bench.first_step_after(preempted, attempt=2)
    jobs.delete_and_wait(key)
    session.cluster.restore(node)
    _finish(bench, job.team, job.name)
    return seconds


def _finish(bench: Arena, team: str, job: str) -> None:
    """Mark the run as ended, so that the next one starts at step 0."""
    root = bench.session.run_root(team, job)
    (root / next_run(root) / "final.json").touch()
