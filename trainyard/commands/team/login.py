from pathlib import Path
from typing import Annotated

import typer

from trainyard.stack.session import Session


def login(
    file: Annotated[
        Path, typer.Argument(help="The file of `trainyard team access`, from your platform team.")
    ],
    allow: Annotated[
        str, typer.Option(metavar="PROGRAM", help="A further exec plugin that may sign you in.")
    ] = "",
) -> None:
    """Add a context to your kubeconfig, with which you reach a cluster as a team member.

    [dim]trainyard team login training-research.access.yaml
    export TRAINYARD_CONTEXT=training-research[/]
    """
    from trainyard.stack.login import log_in

    log_in(Session("local"), file, allowed=allow)
