"""Policy: firewall rules and security groups admit no traffic from the whole internet, or from networks
broader than /8 (IPv4) or /16 (IPv6).
"""

from __future__ import annotations

from collections.abc import Iterator
from ipaddress import ip_network

from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import independent
from policies.unknowns import PropertyBlock

PUBLIC_SOURCES = ("*", "internet", "any")

BROADEST_PREFIX = {4: 8, 6: 16}
"""Shortest permitted prefix by IP version. Two halves of the internet are the internet too: a wider
network has no single owner."""
SOURCES = (
    "cidrBlocks",
    "ipv6CidrBlocks",
    "cidrIpv4",
    "cidrIpv6",
    "sourceRanges",
    "sourceAddressPrefix",
    "sourceAddressPrefixes",
)
"""Properties of security groups, firewalls and their rules with the sources of traffic."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Inbound rules, inside the group or by themselves, take named sources."""
    props = resource.props
    for name in ("ingress", "securityRules"):
        for rule in props.blocks(name):
            if not _is_outbound(rule):
                yield from _public_sources(rule)
    if not _is_outbound(props):
        yield from _public_sources(props)


def _is_outbound(rule: PropertyBlock) -> bool:
    if str(rule.get("access", "Allow")).lower() == "deny" or rule.get("denies"):
        return True
    return rule.get("type") == "egress" or str(rule.get("direction", "")).lower() in ("egress", "outbound")


@independent
def _public_sources(rule: PropertyBlock) -> Iterator[Violation]:
    for name in SOURCES:
        for source in rule.texts(name):
            if _is_public(source):
                yield Violation(rule.at(name), source, "networks that need to connect")


def _is_public(source: str) -> bool:
    if source.lower() in PUBLIC_SOURCES:
        return True
    try:
        network = ip_network(source, strict=False)
    except ValueError:
        return False  # a service tag or the name of a group
    return network.prefixlen < BROADEST_PREFIX[network.version]


POLICY = Policy(
    name="security-ingress",
    title="No ingress from everywhere",
    reason="Nodes run many people's code and trust their network, so only named networks may reach them.",
    remedy="Name the networks, or reference a security group.",
    types=(
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:ec2/defaultSecurityGroup:DefaultSecurityGroup",
        "aws:ec2/securityGroupRule:SecurityGroupRule",
        "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule",
        "gcp:compute/firewall:Firewall",
        "azure-native:network:NetworkSecurityGroup",
        "azure-native:network:SecurityRule",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP EC2.18", "CIS AWS Foundations 5.2", "NIST SP 800-53 SC-7"),
)
