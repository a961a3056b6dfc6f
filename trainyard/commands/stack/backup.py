from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def backup(
    file: Annotated[Path, typer.Argument(metavar="FILE", dir_okay=False, help="File to write (0600).")],
    stack: StackName = "",
) -> None:
    """Write what another host needs to go on with the stack: its state, the key of its secrets, its file.

    Keep the file on another host, and as you keep a key: it can have the passphrase of the secrets.

    [dim]trainyard stack backup aws.backup.json -s aws[/]
    """
    from trainyard.stack.backup import back_up
    from trainyard.stack.change import prepare_engine

    session = Session(stack)
    prepare_engine(session)
    back_up(session, file)
