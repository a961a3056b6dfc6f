from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def down(
    stack: StackName = "",
    purge: Annotated[bool, typer.Option(help="Also delete the checkpoints and the object store.")] = False,
) -> None:
    """Drain the queues and delete the cluster. Checkpoints are retained, unless --purge."""
    from trainyard.jobs.down import take_down

    take_down(Session(stack), purge=purge)
