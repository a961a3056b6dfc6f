from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def access(
    team: Annotated[str, typer.Option(help="The team whose members get access.")],
    stack: StackName = "",
    sign_in: Annotated[
        str, typer.Option(metavar="COMMAND", help="The exec plugin that signs them in. Default: the stack's.")
    ] = "",
    to: Annotated[Path | None, typer.Option(help="The file. Default: STACK-TEAM.access.yaml.")] = None,
) -> None:
    """Write a file, without secrets, with which a team's members reach the cluster.

    They run `trainyard team login FILE`.

    [dim]trainyard team access --team research -s aws
    trainyard team access --team research -s onprem --sign-in 'kubectl oidc-login get-token …'[/]
    """
    from trainyard.stack.access_export import export_access

    session = Session(stack)
    session.console.print(export_access(session, team, sign_in, to), highlight=False)
