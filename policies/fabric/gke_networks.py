"""Policy: a GKE node pool with a GPU fabric has as many additional networks as its machine type has
additional NICs, or an `acceleratorNetworkProfile`.
"""

from collections.abc import Iterator

import catalog
from policies.policy import Policy, Resource, Violation
from policies.rules import counted


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Find node pools with fewer or more networks than fabric NICs, unless GKE attaches the networks."""
    network = resource.props.block("networkConfig")
    machine = resource.props.get("nodeConfig.machineType", "")
    wanted = _networks(machine)
    if not wanted or network.get("acceleratorNetworkProfile"):
        return
    found = network.count("additionalNodeNetworkConfigs")
    if found != wanted:
        path = "networkConfig.additionalNodeNetworkConfigs"
        yield Violation(
            path, counted(found, "network"), f"{wanted} on {machine}, or an acceleratorNetworkProfile"
        )


def _networks(machine: str) -> int:
    """Additional networks of a node; 0 if its fabric needs none, or the catalogue lacks the machine.

    The number of the fabric's last interface in a pod, `eth9`, is the count: A3 Ultra and A4 have a second
    ordinary NIC, `eth1`, besides their eight; on A3 Mega it would replace a GPU's (GKE: GPUDirect-TCPXO; AI
    Hypercomputer: GPUDirect RDMA; 2026-11).
    """
    found = catalog.find_machine(machine, "gcp")
    interfaces = catalog.fabric(found.fabric).interfaces if found else {}
    return max((int(name.removeprefix("eth")) for name in interfaces), default=0)


POLICY = Policy(
    name="fabric-gke-networks",
    title="GKE pools with a fabric are on all of its networks",
    reason="A GPU whose NIC has no network uses TCP, at a hundredth of the speed.",
    remedy="Give the pool a network per NIC, or set acceleratorNetworkProfile to auto.",
    types=("gcp:container/nodePool:NodePool",),
    evaluate=evaluate,
    frameworks=("GKE: maximize GPU network bandwidth",),
)
