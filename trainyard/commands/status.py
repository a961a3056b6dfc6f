from trainyard.commands.options import AdminContext, StackName
from trainyard.stack.session import Session


def status(stack: StackName = "", context: AdminContext = "") -> None:
    """Show the nodes and the jobs. With --context no stack file is needed.

    [dim]trainyard status -s aws
    trainyard status --context datacenter[/]
    """
    from trainyard.jobs.status import show_status

    show_status(Session(stack, context=context))
