from typing import Annotated

import typer

from trainyard.commands.options import Context, StackName, TeamOfJob
from trainyard.stack.session import Session


def ui(
    stack: StackName = "",
    context: Context = "",
    team: TeamOfJob = "",
    port: Annotated[int, typer.Option(min=1024, max=65535, help="Port on this host's loopback.")] = 8321,
) -> None:
    """Show the cluster, its queues and the jobs as a page in the browser, until Ctrl-C.

    The page only reads, with your own rights, and is served on this host alone. On a remote host, forward
    the port: ssh -L 8321:127.0.0.1:8321 HOST.

    [dim]trainyard ui
    trainyard ui --context research --port 9000[/]
    """
    from trainyard.page.serve import serve

    serve(Session(stack, context=context, team=team), port)
