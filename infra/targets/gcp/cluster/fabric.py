"""Creates the networks of GPU fabrics on Google Cloud, and registers them in GKE so that pods can attach to
them.

A3 Mega (TCPXO) has a VPC per fabric NIC. A3 Ultra and A4 (RoCE) have one RDMA VPC with a subnet per fabric
NIC, and another VPC for their second ordinary NIC. For fabrics that pods request by DRA claims, GKE creates
the networks (DRANET).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_gcp.compute._inputs import FirewallAllowArgs
from pulumi_gcp.compute.firewall import Firewall
from pulumi_gcp.compute.network import Network as Vpc
from pulumi_gcp.compute.subnetwork import Subnetwork

import catalog
from infra.common.kubernetes_objects import Access, KubernetesObject
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.gcp.cluster.network import MTU, TCPXO_MTU
from infra.targets.gcp.cluster.scope import Scope

SECOND_NIC = "gvnic-1"
_API = "networking.gke.io/v1"


@dataclass(frozen=True)
class GkeNic:
    """One further network interface of a node."""

    network: str
    """Name of the interface's Kubernetes Network."""
    device_mode: str
    """Device mode of the network: `NetDevice` or `RDMA`."""
    vpc: pulumi.Output[str]
    subnetwork: pulumi.Output[str]


def cluster_mtu(pools: Iterable[NodePoolSpec]) -> int:
    """Return the MTU of nodes' ordinary networks: with TCPXO, all networks of a node need its MTU."""
    return TCPXO_MTU if any(pool.fabric == "tcpxo" for pool in pools) else MTU


def make_fabrics(scope: Scope, pools: Sequence[NodePoolSpec]) -> dict[str, list[GkeNic]]:
    """Make the VPCs of every fabric class in use; return class → its NICs, in the machine type's order."""
    nics: dict[str, list[GkeNic]] = {}
    in_use = {pool.fabric for pool in pools}
    if "tcpxo" in in_use:
        nics["tcpxo"] = [
            _plain(scope, f"fabric-{index}", network, scope.ranges.fabric[index], TCPXO_MTU)
            for index, network in enumerate(catalog.fabric("tcpxo").interfaces.values())
        ]
    if "roce" in in_use:
        zone = next((pool.zones or scope.spec.zones)[0] for pool in pools if pool.fabric == "roce")
        nics["roce"] = [
            _plain(scope, SECOND_NIC, SECOND_NIC, scope.ranges.second_nic, cluster_mtu(pools)),
            *_rdma(scope, zone),
        ]
    return nics


def _plain(scope: Scope, role: str, network: str, cidr: IPv4Network, mtu: int) -> GkeNic:
    """A VPC of one subnet, inside of which everything may talk."""
    vpc = Vpc(
        scope.named(role),
        auto_create_subnetworks=False,
        routing_mode="REGIONAL",
        mtu=mtu,
        # These networks carry no traffic to the internet.
        delete_default_routes_on_create=True,
        project=scope.project,
        opts=scope.options(),
    )
    subnetwork = _subnetwork(scope, role, vpc, cidr)
    Firewall(
        scope.named(role),
        network=vpc.id,
        direction="INGRESS",
        source_ranges=[str(cidr)],
        allows=[FirewallAllowArgs(protocol=protocol) for protocol in ("tcp", "udp", "icmp")],
        project=scope.project,
        opts=scope.options(),
    )
    return GkeNic(network, "NetDevice", vpc.name, subnetwork.name)


def _rdma(scope: Scope, zone: str) -> list[GkeNic]:
    """The RoCE VPC of a zone; its profile makes it RDMA only, without firewall rules."""
    vpc = Vpc(
        scope.named("rdma"),
        auto_create_subnetworks=False,
        network_profile=f"projects/{scope.project}/global/networkProfiles/{zone}-vpc-roce",
        mtu=MTU,
        project=scope.project,
        opts=scope.options(),
    )
    nics = []
    for index, network in enumerate(catalog.fabric("roce").interfaces.values()):
        subnetwork = _subnetwork(scope, network, vpc, scope.ranges.fabric[index])
        nics.append(GkeNic(network, "RDMA", vpc.name, subnetwork.name))
    return nics


def _subnetwork(scope: Scope, role: str, vpc: Vpc, cidr: IPv4Network) -> Subnetwork:
    return Subnetwork(
        scope.named(role),
        network=vpc.id,
        ip_cidr_range=str(cidr),
        region=scope.region,
        project=scope.project,
        opts=scope.options(),
    )


def publish(access: Access, parent: pulumi.Resource, nics: Iterable[GkeNic]) -> None:
    """Register the networks with GKE, so that a pod's annotation can ask for them."""
    for nic in nics:
        parameters = KubernetesObject(_parameters(nic), access.options(parent))
        KubernetesObject(_network(nic), access.options(parent, [parameters]))


def _parameters(nic: GkeNic) -> dict[str, object]:
    spec = {"vpc": nic.vpc, "vpcSubnet": nic.subnetwork, "deviceMode": nic.device_mode}
    return {"apiVersion": _API, "kind": "GKENetworkParamSet", "metadata": _metadata(nic), "spec": spec}


def _network(nic: GkeNic) -> dict[str, object]:
    group, kind = _API.partition("/")[0], "GKENetworkParamSet"
    spec = {"type": "Device", "parametersRef": {"group": group, "kind": kind, "name": nic.network}}
    return {"apiVersion": _API, "kind": "Network", "metadata": _metadata(nic), "spec": spec}


def _metadata(nic: GkeNic) -> dict[str, object]:
    return {"name": nic.network, "labels": {"app.kubernetes.io/managed-by": "trainyard"}}
