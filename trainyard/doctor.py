"""`trainyard doctor`: the machine, seen before anything is done to it."""

from __future__ import annotations

from collections.abc import Iterable

from infra.errors import MachineError, Problem
from local.toolchain.doctor import diagnose
from trainyard.session import Session
from trainyard.up import wanted_artifacts


def examine(session: Session) -> int:
    """Print what there is, what is missing and what `up` would do; return the exit code."""
    diagnosis = diagnose(session.toolchain, wanted_artifacts(session), [lambda: _remains(session)])
    diagnosis.render(session.console)
    session.console.print(
        "[green]`make up` can start.[/]" if not diagnosis.exit_code else "`make up` cannot start yet."
    )
    return diagnosis.exit_code


def _remains(session: Session) -> Iterable[Problem]:
    """Ask the cluster, if there is one, whether it could be brought up again."""
    try:
        session.check_machine()
        if session.cluster_exists:
            session.cluster.check()
    except MachineError as error:
        return error.problems
    return ()
