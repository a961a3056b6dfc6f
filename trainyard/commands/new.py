from pathlib import Path
from typing import Annotated

import typer

from trainyard.stack.session import Session


def new(
    template: Annotated[
        str, typer.Argument(help="aws, local, job, …: a wrong name is refused with all that there are.")
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(help="The folder to write, by which the project is named. Default: TEMPLATE."),
    ] = None,
) -> None:
    """Write a project from a template, like `pulumi new`, without questions.

    [dim]trainyard new aws models[/]
    """
    from trainyard.stack.new import write_project

    write_project(Session("local"), template, folder or Path(template))
