"""The VNet, new or existing: private subnets with NAT, and private endpoints for Key Vault and storage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv4Network

import pulumi
from pulumi_azure_native.network._inputs import (
    AddressSpaceArgs,
    DelegationArgs,
    NatGatewaySkuArgs,
    PrivateDnsZoneConfigArgs,
    PrivateLinkServiceConnectionArgs,
    PublicIPAddressSkuArgs,
    SubnetArgs,
    SubResourceArgs,
)
from pulumi_azure_native.network.nat_gateway import NatGateway
from pulumi_azure_native.network.private_dns_zone_group import PrivateDnsZoneGroup
from pulumi_azure_native.network.private_endpoint import PrivateEndpoint
from pulumi_azure_native.network.public_ip_address import PublicIPAddress
from pulumi_azure_native.network.subnet import Subnet
from pulumi_azure_native.network.virtual_network import VirtualNetwork
from pulumi_azure_native.privatedns._inputs import SubResourceArgs as ZoneSubResourceArgs
from pulumi_azure_native.privatedns.private_zone import PrivateZone
from pulumi_azure_native.privatedns.virtual_network_link import VirtualNetworkLink

from infra.common.subnets import aks_ranges
from infra.targets.azure.cluster.scope import Scope

API_SERVER = "Microsoft.ContainerService/managedClusters"
NETAPP = "Microsoft.NetApp/volumes"


@dataclass(frozen=True)
class Network:
    """IDs of the subnets of nodes, API server, private endpoints and filesystem."""

    vnet: pulumi.Input[str]
    nodes: pulumi.Input[str]
    api_server: pulumi.Input[str]
    endpoints: pulumi.Input[str]
    filesystem: pulumi.Input[str]


def make_network(scope: Scope, group: pulumi.Input[str]) -> Network:
    """Make the VNet, or use the subnets that the stack names."""
    existing = scope.spec.network.existing
    if existing:
        vnet_id = existing.endpoints.rpartition("/subnets/")[0]
        return Network(vnet_id, existing.nodes, existing.api_server, existing.endpoints, existing.filesystem)
    vnet = VirtualNetwork(
        scope.named("vnet"),
        virtual_network_name=scope.named("vnet"),
        resource_group_name=group,
        location=scope.region,
        address_space=AddressSpaceArgs(address_prefixes=[str(scope.spec.network.cidr)]),
        tags=scope.tags,
        # Subnets are separate resources; the VNet's outputs list them too.
        opts=scope.options(ignore_changes=["subnets"]),
    )
    ranges = aks_ranges(scope.spec.network.cidr)
    filesystem = NETAPP if scope.spec.filesystem.kind == "netapp" else None
    subnets = _Subnets(scope, group, vnet)
    # Azure changes one subnet of a VNet at a time.
    nodes = subnets.make("nodes", ranges.nodes, nat=_nat(scope, group))
    api_server = subnets.make("api-server", ranges.api_server, delegated_to=API_SERVER, after=[nodes])
    endpoints = subnets.make("endpoints", ranges.endpoints, after=[api_server])
    filesystems = subnets.make("filesystem", ranges.filesystem, delegated_to=filesystem, after=[endpoints])
    return Network(vnet.id, nodes.id, api_server.id, endpoints.id, filesystems.id)


@dataclass(frozen=True)
class _Subnets:
    scope: Scope
    group: pulumi.Input[str]
    vnet: VirtualNetwork

    def make(
        self,
        role: str,
        cidr: IPv4Network,
        *,
        nat: NatGateway | None = None,
        delegated_to: str | None = None,
        after: Sequence[pulumi.Resource] = (),
    ) -> Subnet:
        delegation = DelegationArgs(name=role, service_name=delegated_to) if delegated_to else None
        return Subnet(
            self.scope.named(role),
            subnet_name=role,
            resource_group_name=self.group,
            virtual_network_name=self.vnet.name,
            address_prefix=str(cidr),
            nat_gateway=SubResourceArgs(id=nat.id) if nat else None,
            delegations=[delegation] if delegation else None,
            # No outbound traffic uses Azure's default outbound address.
            default_outbound_access=False,
            private_endpoint_network_policies="Disabled",
            opts=self.scope.options(depends_on=after),
        )


def _nat(scope: Scope, group: pulumi.Input[str]) -> NatGateway:
    address = PublicIPAddress(
        scope.named("nat"),
        public_ip_address_name=scope.named("nat"),
        resource_group_name=group,
        location=scope.region,
        sku=PublicIPAddressSkuArgs(name="Standard"),
        public_ip_allocation_method="Static",
        tags=scope.tags,
        opts=scope.options(),
    )
    return NatGateway(
        scope.named("nat"),
        nat_gateway_name=scope.named("nat"),
        resource_group_name=group,
        location=scope.region,
        sku=NatGatewaySkuArgs(name="Standard"),
        public_ip_addresses=[SubResourceArgs(id=address.id)],
        tags=scope.tags,
        opts=scope.options(),
    )


class PrivateEndpoints:
    """Addresses inside of the VNet for key vault and storage, and the DNS names that resolve to them."""

    def __init__(self, scope: Scope, group: pulumi.Input[str], network: Network) -> None:
        self._scope, self._group, self._network = scope, group, network
        self._zones: dict[str, PrivateZone] = {}

    def make(
        self, role: str, target: pulumi.Input[str], kind: str, zone: str
    ) -> tuple[pulumi.Resource, pulumi.Output[str]]:
        """Make an endpoint of a service's part (`vault`, `blob`); return what answers by name, and the ID."""
        scope = self._scope
        endpoint = PrivateEndpoint(
            scope.named(role),
            private_endpoint_name=scope.named(role),
            resource_group_name=self._group,
            location=scope.region,
            subnet=SubnetArgs(id=self._network.endpoints),
            private_link_service_connections=[
                PrivateLinkServiceConnectionArgs(name=role, private_link_service_id=target, group_ids=[kind])
            ],
            tags=scope.tags,
            opts=scope.options(),
        )
        config = PrivateDnsZoneConfigArgs(name=kind, private_dns_zone_id=self._zone(zone).id)
        named = PrivateDnsZoneGroup(
            scope.named(role),
            private_dns_zone_group_name="default",
            private_endpoint_name=endpoint.name,
            resource_group_name=self._group,
            private_dns_zone_configs=[config],
            opts=scope.options(),
        )
        return named, endpoint.id

    def _zone(self, name: str) -> PrivateZone:
        """Make a zone once, and let the VNet read it."""
        if name in self._zones:
            return self._zones[name]
        scope, role = self._scope, name.split(".")[1]
        zone = PrivateZone(
            scope.named(f"{role}-names"),
            private_zone_name=name,
            resource_group_name=self._group,
            location="Global",
            tags=scope.tags,
            opts=scope.options(),
        )
        VirtualNetworkLink(
            scope.named(f"{role}-names"),
            virtual_network_link_name=scope.name,
            private_zone_name=zone.name,
            resource_group_name=self._group,
            location="Global",
            virtual_network=ZoneSubResourceArgs(id=self._network.vnet),
            registration_enabled=False,
            tags=scope.tags,
            opts=scope.options(),
        )
        self._zones[name] = zone
        return zone
