from typing import Annotated

import typer

from trainyard.commands.options import AdminContext, StackName
from trainyard.stack.session import Session


def submit(
    stack: StackName = "",
    follow: Annotated[bool, typer.Option(help="Follow the job until it ends.")] = True,
    run: Annotated[str, typer.Option(metavar="RUN", help="Continue this run of the job.")] = "",
    context: AdminContext = "",
) -> None:
    """Submit the stack's training job to its queue, as a new run.

    It connects with the stack's output `kubeconfig`, or with --context as your user.

    [dim]trainyard submit -s aws
    trainyard submit -s aws --context research --no-follow[/]
    """
    from trainyard.jobs.submit import submit_stack_job

    submit_stack_job(Session(stack, context=context), follows=follow, run=run)
