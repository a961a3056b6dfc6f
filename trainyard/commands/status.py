from trainyard.commands.options import AdminContext, Output, StackName
from trainyard.forms import Form
from trainyard.stack.session import Session


def status(stack: StackName = "", context: AdminContext = "", output: Output = Form.TEXT) -> None:
    """Show the nodes and the jobs. With --context no stack file is needed.

    [dim]trainyard status -s aws
    trainyard status --context datacenter
    trainyard status -o json | jq '.nodes[].state'[/]
    """
    from trainyard.jobs.status import show_status

    show_status(Session(stack, context=context), output)
