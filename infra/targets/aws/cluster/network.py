"""Creates the VPC with a private subnet per zone, service endpoints, flow logs and optional NAT; an existing
VPC is used unchanged.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import pulumi
import pulumi_aws as aws

from infra.common import subnets
from infra.targets.aws.cluster.identity import flow_log_role
from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.logs import log_group
from infra.targets.aws.cluster.scope import Scope

INTERFACE_ENDPOINTS = ("ecr.api", "ecr.dkr", "sts", "ec2", "eks", "eks-auth", "logs")
"""AWS services that nodes and add-ons call; S3, which stores image layers, has a gateway endpoint."""
AUTOSCALER_ENDPOINT = "autoscaling"
"""AWS service that the autoscaler in the cluster calls to resize node groups."""
_EVERYWHERE = "0.0.0.0/0"


@dataclass(frozen=True)
class Network:
    """VPC and private subnets of the cluster."""

    vpc_id: pulumi.Input[str]
    private_subnets: Mapping[str, pulumi.Input[str]]
    """Zone → ID of its private subnet."""

    def subnet_ids(self, zones: Sequence[str]) -> list[pulumi.Input[str]]:
        """The subnets of some zones."""
        return [self.private_subnets[zone] for zone in zones]


def make_network(scope: Scope, keys: Keys, *, has_autoscaler: bool) -> Network:
    """Make the VPC, or use the one that the stack names; an autoscaler calls one endpoint more."""
    existing = scope.spec.network.existing
    if existing:
        return Network(existing.id, {zone: existing.subnets[zone] for zone in scope.spec.zones})
    vpc = aws.ec2.Vpc(
        scope.named("vpc"),
        cidr_block=str(scope.spec.network.cidr),
        enable_dns_support=True,
        enable_dns_hostnames=True,
        region=scope.region,
        tags={"Name": scope.name},
        opts=scope.options(),
    )
    # An instance without a security group gets the default one, so this allows no traffic.
    aws.ec2.DefaultSecurityGroup(
        scope.named("default"), vpc_id=vpc.id, region=scope.region, opts=scope.options()
    )
    ranges = subnets.private_subnets(scope.spec.network.cidr, scope.spec.zones)
    private = {zone: _subnet(scope, vpc, "private", zone, str(ranges[zone])) for zone in ranges}
    tables = {zone: _route_table(scope, vpc, "private", zone, subnet) for zone, subnet in private.items()}
    if scope.spec.network.nat != "none":
        _nat(scope, vpc, tables)
    services = (*INTERFACE_ENDPOINTS, *([AUTOSCALER_ENDPOINT] if has_autoscaler else []))
    _endpoints(scope, vpc, list(private.values()), list(tables.values()), services)
    _flow_logs(scope, vpc, keys)
    return Network(vpc.id, {zone: subnet.id for zone, subnet in private.items()})


def _subnet(
    scope: Scope, vpc: aws.ec2.Vpc, kind: Literal["private", "public"], zone: str, cidr: str
) -> aws.ec2.Subnet:
    tags = {"kubernetes.io/role/internal-elb": "1"} if kind == "private" else {}
    return aws.ec2.Subnet(
        scope.named(f"{kind}-{zone}"),
        vpc_id=vpc.id,
        availability_zone=zone,
        cidr_block=cidr,
        map_public_ip_on_launch=False,
        region=scope.region,
        tags={"Name": scope.named(f"{kind}-{zone}"), **tags},
        opts=scope.options(),
    )


def _route_table(
    scope: Scope, vpc: aws.ec2.Vpc, kind: str, zone: str, subnet: aws.ec2.Subnet
) -> aws.ec2.RouteTable:
    name = scope.named(f"{kind}-{zone}")
    table = aws.ec2.RouteTable(
        name, vpc_id=vpc.id, region=scope.region, tags={"Name": name}, opts=scope.options()
    )
    aws.ec2.RouteTableAssociation(
        name, route_table_id=table.id, subnet_id=subnet.id, region=scope.region, opts=scope.options()
    )
    return table


def _nat(scope: Scope, vpc: aws.ec2.Vpc, private: Mapping[str, aws.ec2.RouteTable]) -> None:
    """Public subnets, which hold NAT gateways and nothing else, and the private subnets' way out."""
    gateway = aws.ec2.InternetGateway(
        scope.named("internet"), vpc_id=vpc.id, region=scope.region, opts=scope.options()
    )
    zones = scope.spec.zones if scope.spec.network.nat == "per-zone" else scope.spec.zones[:1]
    ranges = subnets.public_subnets(scope.spec.network.cidr, scope.spec.zones)
    gateways = {}
    for zone in zones:
        subnet = _subnet(scope, vpc, "public", zone, str(ranges[zone]))
        table = _route_table(scope, vpc, "public", zone, subnet)
        way_out = _route(scope, f"public-{zone}", table, gateway_id=gateway.id)
        name = scope.named(f"nat-{zone}")
        address = aws.ec2.Eip(
            name, domain="vpc", region=scope.region, tags={"Name": name}, opts=scope.options()
        )
        gateways[zone] = aws.ec2.NatGateway(
            scope.named(f"nat-{zone}"),
            subnet_id=subnet.id,
            allocation_id=address.id,
            region=scope.region,
            opts=scope.options(depends_on=[way_out]),
        )
    for zone, table in private.items():
        _route(scope, f"private-{zone}", table, nat_gateway_id=gateways.get(zone, gateways[zones[0]]).id)


def _route(
    scope: Scope,
    role: str,
    table: aws.ec2.RouteTable,
    *,
    gateway_id: pulumi.Input[str] | None = None,
    nat_gateway_id: pulumi.Input[str] | None = None,
) -> aws.ec2.Route:
    return aws.ec2.Route(
        scope.named(role),
        route_table_id=table.id,
        destination_cidr_block=_EVERYWHERE,
        gateway_id=gateway_id,
        nat_gateway_id=nat_gateway_id,
        region=scope.region,
        opts=scope.options(),
    )


def _endpoints(
    scope: Scope,
    vpc: aws.ec2.Vpc,
    private: Sequence[aws.ec2.Subnet],
    tables: Sequence[aws.ec2.RouteTable],
    services: Sequence[str],
) -> None:
    aws.ec2.VpcEndpoint(
        scope.named("s3"),
        vpc_id=vpc.id,
        vpc_endpoint_type="Gateway",
        service_name=f"com.amazonaws.{scope.region}.s3",
        route_table_ids=[table.id for table in tables],
        region=scope.region,
        opts=scope.options(),
    )
    group = aws.ec2.SecurityGroup(
        scope.named("endpoints"),
        description="HTTPS from the VPC to AWS services",
        vpc_id=vpc.id,
        ingress=[
            aws.ec2.SecurityGroupIngressArgs(
                protocol="tcp", from_port=443, to_port=443, cidr_blocks=[str(scope.spec.network.cidr)]
            )
        ],
        region=scope.region,
        opts=scope.options(),
    )
    for service in services:
        aws.ec2.VpcEndpoint(
            scope.named(service.replace(".", "-")),
            vpc_id=vpc.id,
            vpc_endpoint_type="Interface",
            service_name=f"com.amazonaws.{scope.region}.{service}",
            private_dns_enabled=True,
            subnet_ids=[subnet.id for subnet in private],
            security_group_ids=[group.id],
            region=scope.region,
            opts=scope.options(),
        )


def _flow_logs(scope: Scope, vpc: aws.ec2.Vpc, keys: Keys) -> None:
    name = f"/trainyard/{scope.name}/flow-logs"
    group = log_group(scope, "flow-logs", name, keys)
    aws.ec2.FlowLog(
        scope.named("flow-logs"),
        vpc_id=vpc.id,
        traffic_type="ALL",
        log_destination_type="cloud-watch-logs",
        log_destination=group.arn,
        iam_role_arn=flow_log_role(scope, name),
        max_aggregation_interval=600,
        region=scope.region,
        opts=scope.options(),
    )
