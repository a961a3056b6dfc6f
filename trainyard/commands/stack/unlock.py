from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def unlock(
    stack: StackName = "",
    show: Annotated[
        bool, typer.Option("--show", help="Only say who holds the lock, and fail if held.")
    ] = False,
    over: Annotated[bool, typer.Option("--over", help="You have seen that the holder has ended.")] = False,
) -> None:
    """Release the lock of an `up` that was killed, in this host's state or in a bucket.

    It says who holds the lock and since when, and asks GitHub or GitLab whether that run is over. What the
    killed engine has created but not recorded is found and imported; the next `up` continues.

    [dim]trainyard stack unlock -s mine[/]
    """
    from trainyard.stack.unlock import check_unlocked, release_lock

    session = Session(stack)
    if show:
        check_unlocked(session)
    else:
        release_lock(session, is_over=over)
