"""`trainyard down`: stops the jobs and removes the cluster; data is retained unless purged."""

import shutil
import sys

from infra.errors import InputError, Problem, TrainyardError
from infra.targets.data_types import DataResource
from trainyard.jobs.key import QUEUE
from trainyard.jobs.state import Jobs
from trainyard.stack.data import save_last, show_fates
from trainyard.stack.session import Session, one_at_a_time, planned_by_one

_GOES_WITH_CLUSTER = "deleted with the cluster: all jobs, members' Secrets, and every other object in it"


def take_down(session: Session, *, purge: bool, confirmed: bool = False) -> None:
    """Remove what `up` made. Safe to repeat, and after a crash of either.

    Raises:
        InputError: something is protected, or the user did not confirm; nothing was stopped or deleted.
    """
    name = session.stack.name
    if purge and not session.is_embedded:
        raise InputError([_nothing_to_purge(session)])
    was_up = session.cluster_exists  # read first: a user without read permission must not take it down
    with one_at_a_time(session.paths, name), planned_by_one(session.paths, name):
        session.engine.recover(session.stack_name)
        session.engine.check_unprotected(session.stack_name)  # before jobs are cancelled for nothing
        lost = [] if session.is_embedded else _confirm(session, confirmed=confirmed)
        if was_up:
            session.console.print(_GOES_WITH_CLUSTER, highlight=False, soft_wrap=True)
            _drain(session)
        elif not session.is_embedded and session.engine.exists(session.stack_name):
            _drain_elsewhere(session)
        if session.engine.exists(session.stack_name):
            if lost:
                save_last(session, lost)  # after the jobs' last writes
            result = session.engine.destroy(
                session.stack_name, session.progress, writes_state_once=session.is_embedded
            )
            session.console.print(result.summary())
        if session.cluster_exists:  # created by an engine that was killed before it recorded it
            session.cluster.down()
        if purge:
            for folder in (session.paths.cluster_data(name), session.audit):
                shutil.rmtree(folder, ignore_errors=True)
    data = session.paths.cluster_data(name)
    if data.exists():
        purge_command = f"trainyard down -s {session.stack_name} --purge"
        text = f"checkpoints are retained in {data} (delete them: {purge_command})"
        session.console.print(text, highlight=False, soft_wrap=True)


def _nothing_to_purge(session: Session) -> Problem:
    fix = "leave --purge out: `down` lists what is kept, each with the command that ends its bill"
    got = f"kind: {session.stack.target.kind}, whose data is not on this host"
    return Problem("--purge", got, "the embedded cluster's stack", fix)


def _confirm(session: Session, *, confirmed: bool) -> list[DataResource]:
    """Print what becomes of the data, and ask for the stack's name where it would be deleted; return that."""
    lost = show_fates(session)
    if not lost or confirmed:
        return lost
    allowed, fix = f"the stack's name, {session.stack_name}", "type it, or give --yes in a pipeline"
    if not sys.stdin.isatty():
        raise InputError([Problem("down", "no terminal to confirm on", allowed, fix)])
    typed = input(f"type the stack's name to delete this data ({session.stack_name}): ").strip()
    if typed != session.stack_name:
        raise InputError([Problem("down", f"{typed!r}; nothing was deleted", allowed, fix)])
    return lost


def _drain(session: Session) -> None:
    """Stop every job while its queue exists: later, finalizers would wait for a controller that has been
    deleted.
    """
    if all(node.state != "ready" for node in session.cluster.status().nodes):
        return  # an `up` that was killed: no queue exists yet
    jobs = Jobs(session.api)
    for key in jobs.of_teams():
        jobs.delete(key)


def _drain_elsewhere(session: Session) -> None:
    """Stop the jobs of the stack's own teams, where its API server can be reached."""
    teams = {team.name: team for team in session.stack.teams}
    try:
        jobs = Jobs(session.api)
    except TrainyardError as error:
        session.progress.log(f"its jobs are not cancelled first: {error.problems[0].got}")
        return
    for key in [key for key in jobs.of_teams(session.namespaces) if key.team in teams]:
        labels = ((jobs.get(key) or {}).get("metadata") or {}).get("labels") or {}
        if teams[key.team].namespace and labels.get(QUEUE) not in teams[key.team].local_queues:
            continue  # of others, in a namespace that remains
        session.progress.log(f"stopping {key.name} of team {key.team}")
        jobs.delete_and_wait(key)
