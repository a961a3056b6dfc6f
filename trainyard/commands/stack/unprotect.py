from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def unprotect(
    resource: Annotated[str, typer.Argument(metavar="RESOURCE", help="Its name, as a preview prints it.")],
    stack: StackName = "",
    period: Annotated[str, typer.Option("--for", help="How long: 2h, 30m.")] = "2h",
) -> None:
    """Let the next `up` replace or delete one resource that holds data: a filesystem, a bucket, a team.

    All others stay protected. Copy its data first.

    [dim]trainyard stack unprotect training-lustre --for 2h[/]
    """
    from catalog.quantities import units
    from infra.errors import InputError, Problem
    from trainyard.stack.data import release

    try:
        seconds = units(period, "s")
    except ValueError as error:
        raise InputError([Problem("--for", period, "a duration, such as 2h or 30m", str(error))]) from None
    release(Session(stack), resource, seconds)
