"""Declares EFA's security group and placement groups, and lays out the network interfaces of launch
templates.
"""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from catalog import Machine
from infra.targets.aws.cluster.network import Network
from infra.targets.aws.cluster.scope import Scope
from infra.targets.aws.stackfile.nics import network_interfaces


def efa_security_group(scope: Scope, network: Network) -> aws.ec2.SecurityGroup:
    """A group that lets everything through to and from itself: EFA's protocol is neither TCP nor UDP.

    Its rules are inside it, so that nothing else can be added without a difference in the next preview.
    """
    return aws.ec2.SecurityGroup(
        scope.named("efa"),
        description="EFA between nodes of one zone",
        vpc_id=network.vpc_id,
        ingress=[aws.ec2.SecurityGroupIngressArgs(protocol="-1", from_port=0, to_port=0, self=True)],
        egress=[aws.ec2.SecurityGroupEgressArgs(protocol="-1", from_port=0, to_port=0, self=True)],
        region=scope.region,
        opts=scope.options(),
    )


def interfaces(
    machine: Machine, cluster_group: pulumi.Input[str], efa_group: pulumi.Input[str]
) -> list[aws.ec2.LaunchTemplateNetworkInterfaceArgs]:
    """Return all interfaces of a machine with EFA, for its launch template.

    Groups are named here and nowhere else; the subnet is the node group's to choose.
    """
    return [
        aws.ec2.LaunchTemplateNetworkInterfaceArgs(
            network_card_index=each.card,
            device_index=each.device,
            interface_type=each.interface_type,
            security_groups=[cluster_group, efa_group],
            delete_on_termination="true",
        )
        for each in network_interfaces(machine)
    ]


def placement_group(scope: Scope, pool: str) -> aws.ec2.PlacementGroup:
    """Nodes of one pool close to each other."""
    return aws.ec2.PlacementGroup(
        scope.named(pool), strategy="cluster", region=scope.region, opts=scope.options()
    )
