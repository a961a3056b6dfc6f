from typing import Annotated

import typer

from trainyard.commands.options import Output, StackName
from trainyard.forms import Form
from trainyard.stack.session import Session


def state_bucket(
    bucket: Annotated[str, typer.Argument(help="Name of the bucket; on Azure, of the storage account.")],
    stack: StackName = "",
    region: Annotated[str, typer.Option(help="Region. Default: the stack's region.")] = "",
    output: Output = Form.TEXT,
) -> None:
    """Create the bucket of the engine's state in a stack's cloud, and the key for its secrets.

    The bucket is versioned, private, TLS only, in a region that the stack's residency permits. A second run
    restores its settings. The command prints the engine's settings, and the rights that its user needs.

    [dim]eval "$(trainyard stack state-bucket example-pulumi-state -s aws)"
    pulumi stack init aws --secrets-provider "$SECRETS_PROVIDER"[/]
    """
    from trainyard.stack.state_bucket import create_state_bucket

    create_state_bucket(Session(stack), bucket, region, output)
