import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def doctor(stack: StackName = "") -> None:
    """Show what this host, with -s also the cloud account, has and lacks, and what `up` would install."""
    from trainyard.stack.doctor import examine

    raise typer.Exit(examine(Session(stack)))
