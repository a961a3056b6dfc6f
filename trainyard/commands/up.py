from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import JobFile, StackName
from trainyard.stack.session import Session


def up(
    stack: StackName = "",
    job: JobFile = None,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Look at what exists first, and create what is gone.")
    ] = False,
    plan: Annotated[
        Path | None, typer.Option(help="Refuse what this plan of `preview --plan` does not have.")
    ] = None,
) -> None:
    """Create or update the stack's cluster; with --job, then run a job on it.

    A second run applies only changes of the stack file. Ctrl-C is safe at any time: run it again, and it
    continues.
    """
    from trainyard.stack.change import bring_up

    session = Session(stack)
    if job is None:
        bring_up(session, None, refresh=refresh, plan=plan)
        return
    from trainyard.jobs.submit import runner_of  # its problems are reported before anything is started

    bring_up(session, runner_of(session, job), refresh=refresh, plan=plan)
