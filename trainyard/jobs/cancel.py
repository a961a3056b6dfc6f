"""`trainyard cancel`: deletes a job, and names where its files are retained."""

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
    session.console.print(
        f"removed {key.name}; {_retained_data(session, key, run)}", highlight=False, soft_wrap=True
    )


def _retained_data(session: Session, key: JobKey, run: str) -> str:
    """Return where a deleted job's files are, and how a run of the same name continues from them."""
    on_volume = f"on the team's volume: {CHECKPOINTS}/{key.name}/{run}".rstrip("/")
    where = f"in {session.run_root(key.team, key.name)}" if session.is_on_host else on_volume
    resume = f"; to continue from them: trainyard run JOB.YAML --name {key.name} --run {run}" if run else ""
    return f"its files are retained {where}{resume}"
