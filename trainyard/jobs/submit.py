"""Submits jobs once their data is staged, and reports what exists if the command is interrupted; also cancels
jobs.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from http import HTTPStatus
from typing import Any

from infra.clients.kubernetes import ApiError, NoAnswer
from infra.errors import InterruptedByUser, Problem, TrainyardError
from infra.stackfile.job import JobSpec
from trainyard.jobs.cluster import key_of
from trainyard.jobs.key import RUN, JobKey
from trainyard.jobs.manifest import CHECKPOINTS, manifest
from trainyard.jobs.placement import placement_of
from trainyard.jobs.retrying_jobs import NOT_SUBMITTED, RetryingJobs, take_up, unanswered
from trainyard.jobs.state import Jobs, Staging
from trainyard.stack.session import Session, next_run

STAGING_POLL_SECONDS = 2.0


def run_stack_job(session: Session, job: JobSpec, started: float) -> None:
    """Run the stack's job to its end; one that already ended unchanged is reported, not run again.

    Raises:
        TrainyardError: the job failed.
    """
    key = JobKey(job.team, job.name)
    run = _submitted_run(session, job)
    if run is None:
        run = new_run(session, key)
        await_data(session, job)
        Jobs(session.api).delete_and_wait(key)
        submit(session, key, _manifest(session, job, run), run)
    from trainyard.jobs.follow import follow_stack_job  # after the job is submitted: 40 ms

    follow_stack_job(session, job, run, started)


def new_run(session: Session, key: JobKey, *, exists: bool = True) -> str:
    """Return the name of the job's next run; a failed run is continued.

    A cluster whose volumes are elsewhere is asked for the job alone; without one, the time names the run.
    `exists` is False where the cluster is known to have no job of that name.
    """
    if session.is_on_host:
        return next_run(session.run_root(key.team, key.name))
    jobs = Jobs(session.api)
    existing = jobs.get(key) if exists else None
    if existing is not None and jobs.state(key).phase == "failed":
        return str(existing["metadata"].get("annotations", {}).get(RUN) or _run_of_now())
    return _run_of_now()


def _run_of_now() -> str:
    return datetime.now(UTC).strftime("run-%Y%m%d-%H%M%S")


def submit_stack_job(session: Session, *, follows: bool, run: str = "") -> None:
    """Submit the stack's job; the one before it must have ended. `run` names one to continue.

    Raises:
        TrainyardError: the cluster refused it, or the job failed (exit code 4).
        InterruptedByUser: Ctrl-C; a submitted job continues.
    """
    job = session.job
    key = JobKey(job.team, job.name)
    started = time.time()
    with interruptible(session, key):
        jobs = Jobs(session.api)
        run = run or new_run(session, key)
        if jobs.get(key) is not None and jobs.state(key).ended:
            jobs.delete_and_wait(key)
        await_data(session, job)
        submit(session, key, _manifest(session, job, run), run)
        if follows:
            from trainyard.jobs.follow import follow_stack_job

            follow_stack_job(session, job, run, started)


def submit(session: Session, key: JobKey, body: dict[str, Any], run: str = "") -> None:
    """Submit a job, and report it.

    Raises:
        TrainyardError: the cluster refused it; or did not answer, and may have it.
    """
    try:
        Jobs(session.api).submit(body)
    except NoAnswer as error:  # the request may have arrived
        raise TrainyardError([unanswered(error, _if_submitted(key))]) from error
    # Not by the console, which imports rich while the job's pods start.
    sys.stdout.write(f"submitted {key.name}{f' as {run}' if run else ''} to the queue of team {key.team}\n")
    sys.stdout.flush()


@contextmanager
def interruptible(session: Session, key: JobKey) -> Iterator[None]:
    """Keep the job running whatever ends the command, and report what exists.

    Raises:
        InterruptedByUser: in place of what Python raises at Ctrl-C.
        TrainyardError: the connection broke off, or the user's credential has expired.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise InterruptedByUser(_submitted_state(session, key)) from None
    except (NoAnswer, ApiError) as error:
        if isinstance(error, ApiError) and error.status != HTTPStatus.UNAUTHORIZED:
            raise
        # What runs after a submission has already reported that the job exists.
        raise TrainyardError([unanswered(error, NOT_SUBMITTED)]) from error


def _submitted_state(session: Session, key: JobKey) -> str:
    try:
        exists = Jobs(session.api).get(key) is not None
    except (TrainyardError, KeyboardInterrupt):
        text = _if_submitted(key)
        return text[0].upper() + text[1:]
    if exists:
        again, delete = take_up(key), f"trainyard cancel {key.name}"
        return f"{key.name} continues; follow it again: {again}; delete it: {delete}"
    return "No job was submitted. The same command starts it."


def _if_submitted(key: JobKey) -> str:
    return f"if {key.name} was submitted (trainyard jobs), it continues; follow it again: {take_up(key)}"


def cancel_job(session: Session, name: str) -> None:
    """Delete a job; its checkpoints are retained."""
    key, jobs = key_of(session, name), Jobs(session.api)
    jobs.state(key)  # raises where there is none
    run = ((jobs.get(key) or {}).get("metadata", {}).get("annotations") or {}).get(RUN, "")
    jobs.delete(key)
    session.console.print(f"removed {key.name}; {_retained_data(session, key, run)}", highlight=False)


def _retained_data(session: Session, key: JobKey, run: str) -> str:
    """Return where a deleted job's checkpoints are, and how to continue, where there is a command for it.

    `submit` starts the stack's own job alone; what `trainyard run` started is continued by nothing else than
    code that reads the folder.
    """
    if not _is_of_stack(session, key):
        return f"its files are retained on the team's volume: {CHECKPOINTS}/{key.name}/{run}".rstrip("/")
    resume = f"; to continue: trainyard submit -s {session.stack_name} --run {run}" if run else ""
    if session.is_on_host:
        return f"its checkpoints are retained in {session.run_root(key.team, key.name)}{resume}"
    return f"the checkpoints of {run or 'its runs'} are retained on the team's volume{resume}"


def _is_of_stack(session: Session, key: JobKey) -> bool:
    """Whether a job is the one that the stack file declares."""
    if not session.has_file or session.is_fleet:
        return False
    job = session.stack.job
    return job is not None and (job.team, job.name) == (key.team, key.name)


def _submitted_run(session: Session, job: JobSpec) -> str | None:
    """Return the run that is in the cluster for just this job, whether it runs or has ended."""
    existing = Jobs(session.api).get(JobKey(job.team, job.name))
    if existing is None:
        return None
    annotations = existing["metadata"].get("annotations", {})
    run = str(annotations.get(RUN, ""))
    wanted = _manifest(session, job, run)["metadata"]["annotations"]
    return run if wanted.items() <= annotations.items() else None


def _manifest(session: Session, job: JobSpec, run: str) -> dict[str, Any]:
    return manifest(job, run, session.stack.datasets, placement_of(session.stack))


def await_data(session: Session, job: JobSpec) -> None:
    """Return once the job's datasets are staged: a job that waited for one would hold its accelerators.

    Raises:
        TrainyardError: a dataset could not be staged, or nothing stages it.
    """
    jobs = RetryingJobs(session, JobKey(job.team, job.name), submitted=False)
    for dataset in filter(None, (job.dataset, *job.datasets)):
        staging = jobs.staging(dataset, job.team)
        if staging.phase == "under way":
            with session.progress.task(f"dataset {dataset}"):
                while staging.phase == "under way":
                    time.sleep(STAGING_POLL_SECONDS)
                    staging = jobs.staging(dataset, job.team)
        if staging.phase not in {"staged", "hidden"}:
            raise TrainyardError([_not_staged(dataset, staging)])


def _not_staged(dataset: str, staging: Staging) -> Problem:
    failed = staging.phase == "failed"
    fix = f"read `kubectl logs {staging.job}`" if failed else "bring the stack up: `trainyard up`"
    got = "its staging failed" if failed else "no Job stages it"
    return Problem(f"dataset {dataset}", got, "a staged dataset", fix)
