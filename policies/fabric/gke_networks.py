"""GKE pools of machines with a fabric are on its networks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.policy import Policy, Resource, Violation

NETWORKS: Mapping[str, int] = {
    "a3-megagpu-8g": 8,
    "a3-ultragpu-8g": 9,
    "a4-highgpu-8g": 9,
}
"""Further networks of each machine (GKE: GPUDirect-TCPXO; AI Hypercomputer: GPUDirect RDMA; 2026-11).

A3 Ultra and A4 have a second ordinary card besides their eight; on A3 Mega it would take a GPU's place.
"""


def judge(resource: Resource) -> Iterator[Violation]:
    """All cards of the machine have their network, or GKE gives them theirs."""
    network = resource.props.block("networkConfig")
    machine = resource.props.get("nodeConfig.machineType", "")
    wanted = NETWORKS.get(machine)
    if wanted is None or network.get("acceleratorNetworkProfile"):
        return
    found = network.count("additionalNodeNetworkConfigs")
    if found != wanted:
        path = "networkConfig.additionalNodeNetworkConfigs"
        yield Violation(path, f"{found} networks", f"{wanted} on {machine}, or an acceleratorNetworkProfile")


POLICY = Policy(
    name="fabric-gke-networks",
    title="GKE pools with a fabric are on all of its networks",
    reason="A card without its network is a GPU that talks over TCP: jobs run, at a hundredth of the speed.",
    remedy="Give the pool a network per card, or set acceleratorNetworkProfile to auto.",
    types=("gcp:container/nodePool:NodePool",),
    judge=judge,
    frameworks=("GKE: maximize GPU network bandwidth",),
)
