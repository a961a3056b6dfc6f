from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def new(
    name: Annotated[str, typer.Argument(help="The team's name; its namespace is team-NAME.")],
    owner: Annotated[str, typer.Option(help="Who answers for the team, such as an e-mail address.")],
    group: Annotated[list[str], typer.Option(help="A group of your identity provider that submits jobs.")],
    quota: Annotated[
        str, typer.Option(metavar="N|POOL=N,…", help="Accelerators of its own. Default: its queue's.")
    ] = "",
    queue: Annotated[str, typer.Option(help="A queue of the stack. Default: the only one.")] = "",
    expires: Annotated[str, typer.Option(metavar="DATE", help="Its last day, 2027-06-30.")] = "",
    cost_centre: Annotated[str, typer.Option(help="The cost centre that is charged.")] = "",
    stack: StackName = "",
) -> None:
    """Write a team's file for a pull request: stacks/teams/NAME.yaml, and no other file.

    [dim]trainyard team new vision --owner ada@example.com --group vision --quota 16 --expires 2027-06-30[/]
    """
    from trainyard.stack.team_files import new_team

    keys = {"owner": owner, "members": group, "queue": queue, "expires": expires, "cost_centre": cost_centre}
    new_team(Session(stack), name, keys, quota)
