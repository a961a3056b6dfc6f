import typer

from trainyard.commands.options import Output, StackName
from trainyard.forms import Form
from trainyard.stack.session import Session


def doctor(stack: StackName = "", output: Output = Form.TEXT) -> None:
    """Show what this host, the stack's cloud account or its cluster has and lacks, and what `up` installs.

    [dim]trainyard doctor -s aws
    trainyard doctor -s datacenter -o json | jq '.problems[].fix'[/]
    """
    from trainyard.stack.doctor import examine

    raise typer.Exit(examine(Session(stack), output))
