"""Command line of the agent that enforces NetworkPolicies on a node.

Its source is `local/go/network-policies`.
"""

from pathlib import Path

from local.cluster.context import ClusterContext
from local.cluster.layout import gate
from local.cluster.machine import Daemon

PROGRAM = "network-policies"
USER = "system:network-policies"


def network_policies(folder: Path, node: str, context: ClusterContext) -> Daemon:
    """Return the daemon of a node.

    Its rules must exist before the first pod, so it starts before the API server serves, and waits for the
    gate itself.
    """
    argv = (
        context.binary(PROGRAM),
        f"--kubeconfig={context.client(USER)}",
        f"--node={node}",
        f"--pods={context.plan.nodes[node].pod_subnet}",
        f"--cluster={context.plan.pod_network}",
        f"--gate={gate(folder)}",
    )
    return Daemon(PROGRAM, argv, str(folder / f"{PROGRAM}.log"), {"GOGC": "100"})
