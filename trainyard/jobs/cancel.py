"""`trainyard cancel`: deletes a job, and names where its files are retained."""

from __future__ import annotations

from trainyard.jobs.cluster import key_of
from trainyard.jobs.key import RUN, JobKey
from trainyard.jobs.manifest import CHECKPOINTS
from trainyard.jobs.state import Jobs
from trainyard.stack.session import Session


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
