from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import Context, JobName, StackName, TeamOfJob
from trainyard.stack.session import Session


def bundle(
    name: JobName,
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    to: Annotated[Path | None, typer.Option(help="The archive. Default: JOB-TIME.tar.gz.")] = None,
) -> None:
    """Pack everything known about a job into one archive, for debugging.

    It contains the logs of all nodes and attempts, stacks of running ranks, events, and the job's objects
    without the values of variables and arguments whose names suggest secrets. Logs are not filtered.

    [dim]trainyard job bundle digits
    trainyard job bundle digits --to digits.tar.gz[/]
    """
    from trainyard.jobs.bundle import write_bundle

    session = Session(stack, context=context, team=team)
    session.console.print(write_bundle(session, name, to), highlight=False)
