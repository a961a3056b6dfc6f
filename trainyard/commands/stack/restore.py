from pathlib import Path
from typing import Annotated

import typer


def restore(
    file: Annotated[
        Path, typer.Argument(metavar="FILE", exists=True, dir_okay=False, help="Of `trainyard stack backup`.")
    ],
) -> None:
    """Take a stack to this host: its file, the key of its secrets and its state; nothing else is changed.

    [dim]trainyard stack restore aws.backup.json && trainyard preview -s aws[/]
    """
    from trainyard.stack.backup import Backup, take_over
    from trainyard.stack.change import prepare_engine
    from trainyard.stack.session import Session

    backup = Backup.read(file)
    session = Session(backup.stack)
    backup.write_files(session)
    prepare_engine(session)
    take_over(backup, session)
