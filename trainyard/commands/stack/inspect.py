from typing import Annotated

import typer


def inspect(
    context: Annotated[
        str,
        typer.Option(
            "--context",
            envvar="TRAINYARD_CONTEXT",
            help="A context of your kubeconfig that reaches the cluster.",
        ),
    ],
) -> None:
    """Show what a cluster has that no stack uses yet, and the part of a stack file that follows from it.

    It reads only: version, nodes and their accelerators, operators with their owners, storage classes.
    """
    from rich.console import Console

    from engine.paths import Paths
    from infra.targets.kubeconfig import kubeconfig_with_credentials
    from trainyard.stack.access import api_from
    from trainyard.stack.cluster.inspect import show_cluster

    kubeconfig = kubeconfig_with_credentials(context, path="--context")
    api = api_from(kubeconfig, Paths.from_environment().cache / "keys")
    show_cluster(api, context, Console())
