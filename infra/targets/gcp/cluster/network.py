"""The VPC, new or existing: one private subnet, firewall rules, optionally Cloud NAT, and a peering for
managed filesystems.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_gcp.compute._inputs import (
    FirewallAllowArgs,
    RouterNatLogConfigArgs,
    SubnetworkLogConfigArgs,
    SubnetworkSecondaryIpRangeArgs,
)
from pulumi_gcp.compute.firewall import Firewall
from pulumi_gcp.compute.global_address import GlobalAddress
from pulumi_gcp.compute.network import Network as Vpc
from pulumi_gcp.compute.router import Router
from pulumi_gcp.compute.router_nat import RouterNat
from pulumi_gcp.compute.subnetwork import Subnetwork
from pulumi_gcp.servicenetworking.connection import Connection

from infra.targets.gcp.cluster.scope import Scope
from infra.targets.gcp.stackfile.target import ExistingGcpNetworkSpec

MTU = 8896
"""Largest MTU of a VPC (VPC: maximum transmission unit)."""
TCPXO_MTU = 8244
"""MTU that GPUDirect-TCPXO requires of all networks of its nodes (GKE: GPUDirect-TCPXO)."""
LUSTRE_PORTS = ("988", "6988")
"""Ports of Lustre: the usual one, and the one that older versions of GKE use."""
WEBHOOK_PORTS = ("8082", "8443", "9443")
"""Ports of the operators' webhooks and of Kueue's API."""
PODS_RANGE, SERVICES_RANGE = "pods", "services"


@dataclass(frozen=True)
class Network:
    """VPC and subnet of the cluster's nodes, with the ranges of pods and Services."""

    id: pulumi.Input[str]
    """ID of the VPC: `projects/<project>/global/networks/<name>`."""
    subnetwork: pulumi.Input[str]
    pods_range: str
    services_range: str
    peering: pulumi.Resource | None
    """Peering that must exist before a managed filesystem; None for an existing VPC."""
    filesystem_range: pulumi.Input[str] | None = None
    """Name of the allocated range from which a filesystem gets its addresses."""


def make_network(scope: Scope, *, mtu: int) -> Network:
    """Make the VPC, or use the one that the stack names."""
    existing = scope.spec.network.existing
    if existing:
        return _existing(scope, existing)
    vpc = Vpc(
        scope.named("vpc"),
        auto_create_subnetworks=False,
        routing_mode="REGIONAL",
        mtu=mtu,
        project=scope.project,
        opts=scope.options(),
    )
    subnetwork = _subnetwork(scope, vpc)
    if scope.spec.network.nat:
        _nat(scope, vpc, subnetwork)
    # A private control plane has an address in the nodes' range; GKE's firewall admits it on 443 and 10250.
    _allow_ingress(scope, vpc, "webhooks", scope.ranges.nodes, WEBHOOK_PORTS)
    addresses = _peered_addresses(scope, vpc)
    peering = Connection(
        scope.named("peering"),
        network=vpc.id,
        service="servicenetworking.googleapis.com",
        reserved_peering_ranges=[addresses.name],
        opts=scope.options(),
    )
    if scope.spec.filesystem.kind == "lustre":
        # Lustre servers also connect to clients, to revoke locks.
        _allow_ingress(scope, vpc, "lustre", scope.ranges.peered, LUSTRE_PORTS)
    return Network(vpc.id, subnetwork.id, PODS_RANGE, SERVICES_RANGE, peering, addresses.name)


def _existing(scope: Scope, spec: ExistingGcpNetworkSpec) -> Network:
    project = f"projects/{scope.project}"
    return Network(
        id=f"{project}/global/networks/{spec.network}",
        subnetwork=f"{project}/regions/{scope.region}/subnetworks/{spec.subnetwork}",
        pods_range=spec.pods_range,
        services_range=spec.services_range,
        peering=None,
    )


def _subnetwork(scope: Scope, vpc: Vpc) -> Subnetwork:
    ranges = scope.ranges
    return Subnetwork(
        scope.named("nodes"),
        network=vpc.id,
        ip_cidr_range=str(ranges.nodes),
        secondary_ip_ranges=[
            SubnetworkSecondaryIpRangeArgs(range_name=name, ip_cidr_range=str(cidr))
            for name, cidr in ((PODS_RANGE, ranges.pods), (SERVICES_RANGE, ranges.services))
        ],
        # Nodes reach Google Cloud's APIs without public addresses.
        private_ip_google_access=True,
        log_config=SubnetworkLogConfigArgs(
            aggregation_interval="INTERVAL_10_MIN", flow_sampling=0.5, metadata="INCLUDE_ALL_METADATA"
        ),
        region=scope.region,
        project=scope.project,
        opts=scope.options(),
    )


def _nat(scope: Scope, vpc: Vpc, subnetwork: Subnetwork) -> None:
    router = Router(
        scope.named("nat"), network=vpc.id, region=scope.region, project=scope.project, opts=scope.options()
    )
    RouterNat(
        scope.named("nat"),
        router=router.name,
        nat_ip_allocate_option="AUTO_ONLY",
        source_subnetwork_ip_ranges_to_nat="ALL_SUBNETWORKS_ALL_IP_RANGES",
        # A data loader opens many connections at once, for which a fixed number of ports would not suffice.
        enable_dynamic_port_allocation=True,
        min_ports_per_vm=64,
        max_ports_per_vm=4096,
        log_config=RouterNatLogConfigArgs(enable=True, filter="ERRORS_ONLY"),
        region=scope.region,
        project=scope.project,
        opts=scope.options(depends_on=[subnetwork]),
    )


def _peered_addresses(scope: Scope, vpc: Vpc) -> GlobalAddress:
    peered = scope.ranges.peered
    return GlobalAddress(
        scope.named("peering"),
        purpose="VPC_PEERING",
        address_type="INTERNAL",
        address=str(peered.network_address),
        prefix_length=peered.prefixlen,
        network=vpc.id,
        labels=scope.labels,
        project=scope.project,
        opts=scope.options(),
    )


def _allow_ingress(scope: Scope, vpc: Vpc, role: str, source: IPv4Network, ports: Sequence[str]) -> None:
    Firewall(
        scope.named(role),
        network=vpc.id,
        direction="INGRESS",
        source_ranges=[str(source)],
        allows=[FirewallAllowArgs(protocol="tcp", ports=list(ports))],
        project=scope.project,
        opts=scope.options(),
    )
