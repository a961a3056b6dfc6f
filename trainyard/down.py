"""`trainyard down`: queues first, then the cluster; the data stays unless it is asked for twice."""

from __future__ import annotations

import shutil

from trainyard.jobs import JobKey
from trainyard.session import Session, one_at_a_time


def take_down(session: Session, *, purge: bool) -> None:
    """Remove what `up` made. Safe to repeat, and after a crash of either."""
    name = session.stack.name
    was_up = session.cluster_exists  # asked first: whoever may not know may not take it down
    with one_at_a_time(session.paths, name):
        session.engine.recover(session.stack_name)
        if was_up:
            _drain(session)
        if session.engine.exists(session.stack_name):
            result = session.engine.destroy(
                session.stack_name, session.progress, all_at_once=session.is_embedded
            )
            session.console.print(result.summary())
        if session.cluster_exists:  # made by an engine that was killed before it could write that down
            session.cluster.down()
        if purge:
            shutil.rmtree(session.paths.cluster_data(name), ignore_errors=True)
    kept = session.paths.cluster_data(name)
    if kept.exists():
        session.console.print(f"checkpoints stay in {kept} (remove them: make down PURGE=1)", highlight=False)


def _drain(session: Session) -> None:
    """Stop every job while its queue lives: later, finalizers would wait for a controller that is gone."""
    if all(node.state != "ready" for node in session.cluster.status().nodes):
        return  # an `up` that was killed: no queue lives yet
    for job in session.jobs.all():
        metadata = job["metadata"]
        session.jobs.delete(JobKey(metadata["namespace"].removeprefix("team-"), metadata["name"]))
