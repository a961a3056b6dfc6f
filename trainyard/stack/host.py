"""Checks that this host can run a stack's embedded cluster."""

from pathlib import Path

from engine.paths import Paths
from infra.stackfile import Stack


def check_host(stack: Stack, paths: Paths) -> None:
    """Check that this host can start an embedded cluster.

    Raises:
        HostError: the message has all that prevents it: no root, no space, addresses that are taken, ….
    """
    from local.cluster import preflight
    from local.cluster.layout import Layout
    from local.cluster.network import EmbeddedNetwork

    cluster = stack.target.on_host
    if cluster is None:
        return
    layout = Layout(paths.cluster_run(stack.name))
    data = Path(cluster.data_dir) if cluster.data_dir else paths.cluster_data(stack.name)
    link = EmbeddedNetwork(stack.name, layout.networks).host_link
    preflight.check_host(layout, node_cidr=cluster.node_cidr, data_dir=data, link=link)
