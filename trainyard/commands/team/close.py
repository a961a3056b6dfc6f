from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def close(
    name: Annotated[str, typer.Argument(help="The team's name.")],
    stack: StackName = "",
) -> None:
    """Close a team in its file, for a pull request: no further job is admitted, nothing is deleted.

    Its file may be deleted when nothing of it runs and the time of grace is over.

    [dim]trainyard team close vision[/]
    """
    from trainyard.stack.team_files import close_team

    close_team(Session(stack), name)
