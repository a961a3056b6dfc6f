from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def preview(
    stack: StackName = "",
    plan: Annotated[Path | None, typer.Option(help="Write the operations, for `up --plan`.")] = None,
) -> None:
    """Show what `up` would change, under all policies; change nothing."""
    from trainyard.stack.change import show_preview

    show_preview(Session(stack), plan)
