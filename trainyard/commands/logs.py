from typing import Annotated

import typer

from trainyard.commands.options import Context, OptionalJob, StackName, TeamOfJob
from trainyard.stack.session import Session


def logs(
    name: OptionalJob = "",
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    rank: Annotated[int | None, typer.Option(min=0, help="Only the node of this rank.")] = None,
    node: Annotated[int | None, typer.Option(min=0, help="Only this node, counted from 0.")] = None,
    attempt: Annotated[
        int | None, typer.Option(min=0, help="Only this attempt (start of the job's pods), counted from 0.")
    ] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Follow until the job ends.")] = False,
) -> None:
    """Print a job's logs: all nodes and attempts, also after their pods are deleted.

    With several nodes, each line names its node; with one node, lines are printed unchanged.

    [dim]trainyard logs digits
    trainyard logs digits -f --rank 0
    trainyard logs digits --attempt 1 --node 3 > node-3.log[/]
    """
    from trainyard.jobs.logs import ALL, Selection, show_logs

    rank, node, attempt = (ALL if each is None else each for each in (rank, node, attempt))
    chosen = Selection(rank=rank, node=node, attempt=attempt)
    show_logs(Session(stack, context=context, team=team), name, chosen, follow=follow)
