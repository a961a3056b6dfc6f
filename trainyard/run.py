"""Running a job: submit it, follow it to its end, lose nodes on schedule, and tell how it went."""

from __future__ import annotations

import time
from typing import Any

from infra.errors import ExitCode, Problem, TrainyardError
from infra.spec.job import JobSpec
from trainyard.follow import Follower, Losses, Story, until_ended
from trainyard.jobs import RUN, JobKey, Staging, manifest, place_of
from trainyard.session import Session, next_run
from trainyard.spot import cloud
from trainyard.summary import Summary, show
from trainyard.timeline import Event

STAGING_POLL_SECONDS = 2.0


def run_stack_job(session: Session, job: JobSpec, started: float) -> None:
    """Run the stack's job to its end; one that already ended unchanged is told of, not run again.

    Raises:
        TrainyardError: the job failed.
    """
    key = JobKey(job.team, job.name)
    run = _submitted_run(session, job)
    if run is None:
        run = next_run(session.run_root(job.team, job.name))
        await_data(session, job)
        session.jobs.delete_and_wait(key)
        session.jobs.submit(_manifest(session, job, run))
    story = _follow(session, job, run)
    summary = Summary(
        session.stack_name, job, run, session.run_root(job.team, job.name) / run, started, story
    )
    show(session.console, summary)
    if story.state.phase == "failed":
        raise TrainyardError([_failed(job, story)], ExitCode.JOB_FAILED)


def submit_job(session: Session, *, follow: bool) -> None:
    """Submit the stack's job as a run of its own; the one before it must have ended."""
    job = stack_job(session)
    key, run = JobKey(job.team, job.name), next_run(session.run_root(job.team, job.name))
    existing = session.jobs.get(key)
    if existing is not None and session.jobs.state(key).ended:
        session.jobs.delete_and_wait(key)
    await_data(session, job)
    session.jobs.submit(_manifest(session, job, run))
    session.console.print(f"submitted {job.name} as {run} to the queue of team {job.team}", highlight=False)
    if follow:
        run_stack_job(session, job, time.time())


def cancel_job(session: Session, name: str) -> None:
    """Remove a job; its checkpoints stay."""
    key = _key(session, name)
    session.jobs.state(key)  # says so where there is none
    session.jobs.delete(key)
    session.console.print(
        f"removed {key.name}; its checkpoints stay in {session.run_root(key.team, key.name)}"
    )


def show_logs(session: Session, name: str, *, rank: int, follow: bool) -> None:
    """Copy a node's log to the terminal as it comes."""
    stream = session.jobs.logs(_key(session, name), rank, follow=follow)
    for chunk in stream.stream():
        session.console.file.write(chunk.decode(errors="replace"))
        session.console.file.flush()


def _key(session: Session, name: str) -> JobKey:
    if not name:
        job = stack_job(session)
        return JobKey(job.team, job.name)
    for found in session.jobs.all():
        if found["metadata"]["name"] == name:
            return JobKey(found["metadata"]["namespace"].removeprefix("team-"), name)
    return JobKey(session.stack.teams[0].name, name)


def stack_job(session: Session) -> JobSpec:
    """Return the stack's job.

    Raises:
        TrainyardError: it has none.
    """
    if session.stack.job is None:
        raise TrainyardError(
            [
                Problem(
                    path="job",
                    got=f"{session.stack_file.name} has none",
                    allowed="a stack with a `job`",
                    fix="add `job:` to the stack file",
                )
            ],
            ExitCode.WRONG_INPUT,
        )
    return session.stack.job


def _submitted_run(session: Session, job: JobSpec) -> str | None:
    """Return the run that is in the cluster for just this job, whether it runs or has ended."""
    existing = session.jobs.get(JobKey(job.team, job.name))
    if existing is None:
        return None
    annotations = existing["metadata"].get("annotations", {})
    run = str(annotations.get(RUN, ""))
    wanted = _manifest(session, job, run)["metadata"]["annotations"]
    return run if wanted.items() <= annotations.items() else None


def _manifest(session: Session, job: JobSpec, run: str) -> dict[str, Any]:
    stack = session.stack
    return manifest(job, run, stack.datasets, place_of(stack) if job == stack.job else None)


def await_data(session: Session, job: JobSpec) -> None:
    """Return once the job's dataset is staged: a job that waited for it would hold its accelerators.

    Raises:
        TrainyardError: it could not be staged, or nothing stages it.
    """
    if job.dataset is None:
        return
    staging = session.jobs.staging(job.dataset, job.team)
    if staging.phase == "under way":
        with session.progress.task(f"dataset {job.dataset}"):
            while staging.phase == "under way":
                time.sleep(STAGING_POLL_SECONDS)
                staging = session.jobs.staging(job.dataset, job.team)
    if staging.phase != "staged":
        raise TrainyardError([_not_staged(job.dataset, staging)])


def _not_staged(dataset: str, staging: Staging) -> Problem:
    failed = staging.phase == "failed"
    fix = f"read `kubectl logs {staging.job}`" if failed else "bring the stack up: `trainyard up`"
    got = "could not be staged" if failed else "nothing stages it"
    return Problem(f"dataset {dataset}", got, "a dataset that is on the shared filesystem", fix)


def _follow(session: Session, job: JobSpec, run: str) -> Story:
    key = JobKey(job.team, job.name)
    run_dir = session.run_root(job.team, job.name) / run
    follower = Follower(session.jobs, key, run_dir, session.cluster.layout.events)
    losses = Losses(session.jobs, key, job.interruptions)
    progress = session.progress
    with cloud(session.cluster) as taker, progress.task(f"job {job.name}") as task:

        def look(story: Story, new: list[Event]) -> None:
            for event in new:
                progress.said(f"  {event.actor:<5}  {event.text}")
            task.advanced(story.step, story.num_steps, story.measure)
            if story.state.phase == "running" and (due := losses.due(story.step)):
                taker.take(story.state.nodes, due.notice_seconds)

        return until_ended(follower, look)


def _failed(job: JobSpec, story: Story) -> Problem:
    return Problem(
        path=f"job {job.name}",
        got=f"failed at step {story.step}: {story.state.reason}",
        allowed="a job that reaches its last step",
        fix=f"read `trainyard logs {job.name}`; committed checkpoints are kept, a new run resumes from them",
    )
