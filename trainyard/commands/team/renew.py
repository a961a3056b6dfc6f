from datetime import datetime
from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def renew(
    name: Annotated[str, typer.Argument(help="The team's name.")],
    until: Annotated[datetime, typer.Option(formats=["%Y-%m-%d"], metavar="DATE", help="Its last day.")],
    stack: StackName = "",
) -> None:
    """Set the day on which a team expires, in its file, for a pull request.

    [dim]trainyard team renew vision --until 2027-12-31[/]
    """
    from trainyard.stack.team_files import renew_team

    renew_team(Session(stack), name, until.date())
