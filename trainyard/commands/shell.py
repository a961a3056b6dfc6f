from typing import Annotated

import typer

from trainyard.commands.options import Context, JobName, Rank, StackName, TeamOfJob
from trainyard.stack.session import Session


def shell(
    name: JobName,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="[-- PROGRAM …]", help="Run this program instead of a shell."),
    ] = None,
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    rank: Rank = 0,
) -> None:
    """Open a shell in the pod of a rank, or run one program there and exit with its code.

    [dim]trainyard shell digits --rank 3
    trainyard shell digits -- nvidia-smi[/]
    """
    from trainyard.jobs.shell import open_shell

    raise typer.Exit(open_shell(Session(stack, context=context, team=team), name, rank, command or ()))
