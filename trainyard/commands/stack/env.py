import sys

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def env(stack: StackName = "") -> None:
    """Print the environment for `pulumi`, `kubectl` and `helm` on this stack.

    [dim]eval "$(trainyard stack env)" && pulumi preview -s local --config-file "$TRAINYARD_CONFIG"[/]
    """
    from trainyard.stack.exports import exports

    sys.stdout.write(exports(Session(stack)))
