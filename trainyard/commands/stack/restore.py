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
    if not session.stack_file.exists():
        session.stack_file.parent.mkdir(parents=True, exist_ok=True)
        session.stack_file.write_text(backup.stack_file)
    prepare_engine(session)
    take_over(backup, session)
