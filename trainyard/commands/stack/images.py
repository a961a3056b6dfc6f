from pathlib import Path
from typing import Annotated

import typer

from trainyard.commands.options import Output, StackName
from trainyard.forms import Form
from trainyard.stack.session import Session


def images(
    stack: StackName = "",
    output: Output = Form.TEXT,
    check: Annotated[bool, typer.Option("--check", help="Check that the registries have each.")] = False,
    archive: Annotated[
        Path | None, typer.Option(help="Check this OCI archive as the training image, before it is pushed.")
    ] = None,
    lock: Annotated[bool, typer.Option("--lock", help="Write each digest into the stack file.")] = False,
) -> None:
    """List every image and chart of a stack.

    With a mirror in the stack file they are listed at the mirror. --check asks the registries for each, with
    the logins of ~/.docker/config.json, checks that the training images have the libraries of the pools'
    fabrics, and fails if something is missing. --lock writes the present digest of each tag into the stack
    file (images.digests), which nodes then pull.

    [dim]trainyard stack images -s onprem
    trainyard stack images -s onprem --lock
    trainyard stack images -s onprem --check
    trainyard stack images -s onprem --archive torch.oci.tar
    trainyard stack images -s onprem -o json | jq -r '.images[]'[/]
    """
    if lock:
        from trainyard.images.lock import lock_images

        lock_images(Session(stack))
        return
    from trainyard.images.images import show_images

    show_images(Session(stack), output, check=check, archive=archive)
