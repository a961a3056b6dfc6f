"""The part of `trainyard run` that needs no cluster: reads the command line and the job.yaml. Only then it
imports `trainyard.jobs.submit`, and with it the client of the cluster.
"""

from __future__ import annotations

from pathlib import Path

from infra.common import names
from infra.targets.kubeconfig import namespace_of
from trainyard.source.options import RunRequest, Written, job_of, written
from trainyard.stack.session import Session

_UNNAMED = "unnamed"
"""Placeholder for the team, until the cluster's teams are known."""


def run_job(session: Session, asked: RunRequest, *, dry_run: bool, detach: bool) -> None:
    """Start a job, and follow it to its end.

    Raises:
        InputError: the message has all problems; nothing was started.
        TrainyardError: the cluster refused it, or the job failed (exit code 4).
        InterruptedByUser: Ctrl-C; a submitted job continues.
    """
    found = written(asked)
    team = _named_team(session, asked, found)
    if found.is_train_job:
        from trainyard.jobs.submit import submit_as_it_is

        submit_as_it_is(session, found, team, dry_run=dry_run, detach=detach)
        return
    # Problems in a file are reported without a cluster.
    job = job_of(asked, found, team or _UNNAMED, Path.cwd())
    from trainyard.jobs.submit import submit_job

    submit_job(session, job, team, asked, dry_run=dry_run, detach=detach)


def _named_team(session: Session, asked: RunRequest, found: Written) -> str:
    """The team that is named, else the one of the context's namespace; empty where there is neither."""
    named = asked.flags.get("team") or found.data.get("team")
    if named:
        return str(named)
    namespace = namespace_of(session.context) if session.context else ""
    team = names.team_of(namespace)
    return team if team != namespace else ""
