from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def up(
    stack: StackName = "",
    job: Annotated[bool, typer.Option(help="Also run the stack's training job.")] = True,
    refresh: Annotated[
        bool, typer.Option("--refresh", help="Look at what exists first, and create what is gone.")
    ] = False,
) -> None:
    """Create or update the stack's cluster, and run its training job.

    A second run applies only changes of the stack file. Ctrl-C is safe at any time: run it again, and it
    continues.
    """
    from trainyard.jobs.submit import run_stack_job
    from trainyard.stack.change import bring_up

    bring_up(Session(stack), run_stack_job if job else None, refresh=refresh)
