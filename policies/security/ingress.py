"""Policy: no rule of any type admits traffic from the whole internet, or from networks that together are
broader than /8 (IPv4) or /16 (IPv6).
"""

import re
from collections.abc import Iterator

from policies.networks import is_public_range, public_together
from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import independent
from policies.unknowns import PropertyBlock, Value

SOURCES = (
    "cidrBlocks", "ipv6CidrBlocks", "cidrIpv4", "cidrIpv6", "cidrIp", "cidrs", "ipv6Cidrs", "sourceRanges",
    "sourceAddressPrefix", "sourceAddressPrefixes", "sourceAddresses", "srcIpRanges",
)  # fmt: skip
"""Properties of rules, whatever their type, with the sources of traffic."""
LISTED = re.compile(r"(^|\.)(entries|authorizedNetworks|portInfos)(\[\d+\])?$")
"""Lists whose entries are sources: of prefix lists, databases and instances."""
OUTBOUND = re.compile(r"egress|[rR]oute|networkAcl|Acl\b|/(region)?SecurityPolicy", re.IGNORECASE)
"""Types that open nothing: outbound rules, and filters in front of what is open."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Inbound rules, inside a group or by themselves, take named sources."""
    if OUTBOUND.search(resource.type) or resource.props.data.get("disabled") is True:
        return
    for rule in _rules(resource.props.data, ""):
        yield from _public_sources(resource, rule)
    access = resource.props.data.get("remoteAccess")
    if isinstance(access, dict) and "ec2SshKey" in access and not access.get("sourceSecurityGroupIds"):
        yield Violation(
            "remoteAccess.sourceSecurityGroupIds", "nothing, which is 0.0.0.0/0", "security groups"
        )
    if resource.type == "gcp:compute/firewall:Firewall":
        yield from _without_source(resource.props)


@independent
def _without_source(rule: PropertyBlock) -> Iterator[Violation]:
    """A firewall rule of Google Cloud that names no source takes every one."""
    if not _is_outbound(rule) and not any(
        map(rule.has, ("sourceRanges", "sourceTags", "sourceServiceAccounts"))
    ):
        yield Violation("sourceRanges", "nothing, which is 0.0.0.0/0", "networks that need to connect")


def _rules(value: Value, path: str) -> Iterator[PropertyBlock]:
    """Every block that names sources, and whether they may come in."""
    if isinstance(value, list):
        for index, item in enumerate(value):
            yield from _rules(item, f"{path}[{index}]")
    elif isinstance(value, dict):
        listed = LISTED.search(path) or "startIpAddress" in value or "start" in value
        if listed or not value.keys().isdisjoint(SOURCES):
            yield PropertyBlock(value, path)
        for key, item in value.items():
            if key != "egress" and isinstance(item, (list, dict)):
                yield from _rules(item, f"{path}.{key}" if path else key)


@independent
def _public_sources(resource: Resource, rule: PropertyBlock) -> Iterator[Violation]:
    if _is_outbound(rule):
        return
    names = (*SOURCES, *(("cidr", "cidrBlock", "value") if LISTED.search(rule.path) else ()))
    for name in names:
        if name in rule.data:
            for source in public_together(rule.texts(name)):
                yield Violation(rule.at(name), source, "networks that need to connect")
    start, end = rule.get("startIpAddress", ""), rule.get("endIpAddress", "")
    if start and is_public_range(start, end):
        yield Violation(rule.at("endIpAddress"), f"{start} to {end}", "networks that need to connect")


def _is_outbound(rule: PropertyBlock) -> bool:
    if (
        str(rule.get("access", "Allow")).lower() == "deny"
        or rule.get("denies")
        or rule.get("action") == "deny"
        # Into an Azure Firewall lead its NAT rules alone.
        or rule.get("ruleType") in ("ApplicationRule", "NetworkRule")
        or rule.path.startswith(("applicationRuleCollections", "networkRuleCollections"))
    ):
        return True
    return rule.get("type") == "egress" or str(rule.get("direction", "")).lower() in ("egress", "outbound")


POLICY = Policy(
    name="security-ingress",
    title="No ingress from everywhere",
    reason="Nodes run many people's code and trust their network, so only named networks may reach them.",
    remedy="Name the networks, or reference a security group.",
    types=("aws:*", "aws-native:*", "azure-native:*", "gcp:*"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP EC2.18", "CIS AWS Foundations 5.2", "NIST SP 800-53 SC-7"),
)
