import json
import sys
from typing import Annotated

import typer

from trainyard.commands.options import StackName
from trainyard.stack.session import Session


def credential(
    context: Annotated[str, typer.Argument(help="A context of your kubeconfig.")] = "",
    stack: StackName = "",
    member: Annotated[str, typer.Option(help="Embedded cluster: a member of this team.")] = "",
) -> None:
    """Print a credential for Kubernetes clients whose kubeconfig names this command."""
    from infra.targets.kubeconfig import credential as found
    from trainyard.stack.access_export import member_credential

    made = member_credential(Session(stack), member) if member else found(context)
    sys.stdout.write(json.dumps(made))
