from typing import Annotated

import typer

from trainyard.commands.options import Context, Output, StackName, TeamOfJob, Verbose
from trainyard.forms import Form
from trainyard.stack.session import Session


def jobs(
    team: TeamOfJob = "",
    stack: StackName = "",
    context: Context = "",
    output: Output = Form.TEXT,
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Keep running, and show each change.")] = False,
    verbose: Verbose = False,
) -> None:
    """List your teams' jobs: state, GPUs, restarts, nodes, and why they wait or failed.

    [dim]trainyard jobs --context research
    trainyard jobs --watch
    trainyard jobs -o json | jq -r '.[] | select(.state == "failed").name'[/]
    """
    from trainyard.jobs.listing import show_jobs

    show_jobs(Session(stack, context=context, team=team), output, watch=watch, verbose=verbose)
