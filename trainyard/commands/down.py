from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def down(
    stack: StackName = "",
    purge: Annotated[
        bool, typer.Option(help="Also delete the checkpoints and the object store, which are on this host.")
    ] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for the stack's name.")] = False,
) -> None:
    """Drain the queues and delete the cluster.

    It lists the data that would be deleted, that is kept and billed, and that expires, and asks for the
    stack's name. Of the embedded cluster all jobs, Secrets and queues go; its checkpoints stay on this host,
    unless --purge.
    """
    from trainyard.jobs.down import take_down

    take_down(Session(stack), purge=purge, confirmed=yes)
