"""Follows a submitted job to its end. On the embedded cluster it also preempts nodes on schedule, and prints
a summary of the training package's metrics.
"""

from collections.abc import Sequence

from infra.errors import ExitCode, Problem, TrainyardError
from infra.stackfile.job import InterruptionSpec, JobSpec
from trainyard.jobs.history import HistoryReader, JobHistory
from trainyard.jobs.key import PREEMPTIONS, JobKey
from trainyard.jobs.logs import NodeLogs, follow_logs
from trainyard.jobs.manifest import CHECKPOINTS
from trainyard.jobs.retrying_jobs import RetryingJobs, states
from trainyard.jobs.state import Jobs, JobState
from trainyard.stack.session import Session

POLL_SECONDS = 0.3
"""Polling interval: short enough to see every phase, long enough for a few requests per second at most."""


def follow_job(session: Session, job: JobSpec, run: str, started: float) -> None:
    """Follow a job to its end: on this host's cluster by its steps and preemptions, elsewhere by its log.

    Raises:
        TrainyardError: the job failed (exit code 4), or goes on while the API server is unreachable.
    """
    if not session.is_on_host or job.command is not None:  # only the training package writes metrics
        follow(session, JobKey(job.team, job.name), run, job.num_nodes)
        return
    from trainyard.jobs.summary import (  # with what it imports 60 ms, which most callers do not need
        Summary,
        show,
    )

    history = _follow_on_host(session, job, run)
    run_dir = session.run_root(job.team, job.name) / run
    show(session.console, Summary(session.stack_name, job, run, run_dir, started, history))
    _check(job.name, history.state, f"at step {history.step}")


def follow(session: Session, key: JobKey, run: str, num_nodes: int) -> None:
    """Show the queue's decisions on a job and its nodes' output, until it ends.

    Raises:
        TrainyardError: the job failed (exit code 4), or goes on while the API server is unreachable.
    """
    session.progress.log(f"  Ctrl-C stops watching, not the job; delete it: trainyard cancel {key.name}")
    shown = NodeLogs(Jobs(session.api), key, num_nodes)
    state = follow_logs(RetryingJobs(session, key), key, shown, session.progress.log)
    _check(key.name, state)
    run_folder = f", its run's folder {CHECKPOINTS}/{key.name}/{run}" if run else ""
    session.console.print(f"[green]{key.name}: {state.phase}[/]{run_folder}", highlight=False, soft_wrap=True)


def _follow_on_host(session: Session, job: JobSpec, run: str) -> JobHistory:
    from trainyard.jobs.spot import cloud

    key = JobKey(job.team, job.name)
    jobs = RetryingJobs(session, key)
    reader = HistoryReader(session.run_root(job.team, job.name) / run, session.cluster.layout.events)
    scheduled = ScheduledPreemptions(jobs, key, job.interruptions)
    progress, history = session.progress, reader.history
    with cloud(session.cluster) as taker, progress.task(f"job {job.name}") as task:
        for state, decisions in states(jobs, key, POLL_SECONDS):
            for event in reader.read(state, decisions):
                progress.log(f"  {event.actor:<5}  {event.text}")
            task.advanced(history.step, history.num_steps, history.measure)
            if state.phase == "running" and (due := scheduled.due(history.step)):
                taker.take(state.nodes, due.notice_seconds)
        reader.read(state)  # lines that were written between the last poll and the end
    return history


class ScheduledPreemptions:
    """The preemptions that a job schedules, each made once its step is reached.

    Their number is stored with the job itself, so that a repeated `up` does not make them again.
    """

    def __init__(self, jobs: Jobs, key: JobKey, interruptions: Sequence[InterruptionSpec]) -> None:
        self._jobs = jobs
        self._key = key
        self._ordered = sorted(interruptions, key=lambda item: item.at_step)
        annotations = (jobs.get(key) or {"metadata": {}})["metadata"].get("annotations", {})
        self._done = int(annotations.get(PREEMPTIONS, 0))

    def due(self, step: int) -> InterruptionSpec | None:
        """Return the next one if its step is reached, and count it as done."""
        if self._done >= len(self._ordered) or step < self._ordered[self._done].at_step:
            return None
        self._done += 1
        self._jobs.annotate(self._key, PREEMPTIONS, str(self._done))
        return self._ordered[self._done - 1]


def _check(name: str, state: JobState, where: str = "") -> None:
    """Raise TrainyardError for a job that has failed or cannot start."""
    failed = f"read `trainyard logs {name}`; committed checkpoints are retained"
    stopped = f"mend it and go on: trainyard resume {name}; or remove it: trainyard cancel {name}"
    steps = {"failed": (" ".join(("failed", where)).strip(), failed), "stopped": ("cannot start", stopped)}
    if state.phase in steps:
        happened, fix = steps[state.phase]
        problem = Problem(f"job {name}", f"{happened}: {state.reason}", "a job with exit code 0", fix)
        raise TrainyardError([problem], ExitCode.JOB_FAILED)
