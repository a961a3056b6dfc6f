from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def preempt(
    node: Annotated[str, typer.Argument(help="The node's name, as in `trainyard status`.")],
    stack: StackName = "",
    notice: Annotated[float, typer.Option(min=1, help="Seconds from the notice to termination.")] = 30,
    no_notice: Annotated[bool, typer.Option("--no-notice", help="Kill it without a notice.")] = False,
    give_back: Annotated[bool, typer.Option("--return", help="Bring a preempted node back.")] = False,
) -> None:
    """Preempt a local node as a cloud does: preemption notice, taint, grace period, termination.

    [dim]trainyard local preempt spot-0                 30 s of notice
    trainyard local preempt spot-0 --no-notice     killed without a notice
    trainyard local preempt spot-0 --return        capacity is back[/]
    """
    from trainyard.jobs.spot import give_node_back, take_node

    session = Session(stack)
    if give_back:
        give_node_back(session, node)
    else:
        take_node(session, node, None if no_notice else notice)
