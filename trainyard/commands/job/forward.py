from typing import Annotated

import typer

from trainyard.commands.options import Context, JobName, Rank, StackName, TeamOfJob
from trainyard.stack.session import Session


def forward(
    name: JobName,
    port: Annotated[str, typer.Argument(metavar="[LOCAL:]PORT", help="Such as 6006, or 16006:6006.")],
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    rank: Rank = 0,
) -> None:
    """Forward a port of a job's pod to this host (127.0.0.1 only), until Ctrl-C.

    [dim]trainyard job forward digits 6006           TensorBoard of rank 0
    trainyard job forward digits 0:8000 --rank 8    on any free local port[/]
    """
    from trainyard.jobs.forward import forward_port

    forward_port(Session(stack, context=context, team=team), name, port, rank)
