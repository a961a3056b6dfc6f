"""Network interfaces of EFA machines are laid out as EC2 takes them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from policies.policy import Policy, Resource, Violation
from policies.unknowns import Properties

EFA_TYPES = ("efa", "efa-only")

INTERFACES: Mapping[str, int] = {
    "p4d.24xlarge": 4,
    "p4de.24xlarge": 4,
    "p5.48xlarge": 32,
    "p5e.48xlarge": 32,
    "p5en.48xlarge": 16,
    "p6-b200.48xlarge": 8,
    "p6-b300.48xlarge": 16,
}
"""EFA interfaces of each machine (AWS documentation of EFA, 2026-11)."""


def judge(resource: Resource) -> Iterator[Violation]:
    """What EC2 refuses at launch, and what it takes and then trains slowly."""
    props = resource.props
    interfaces = props.blocks("networkInterfaces")
    fast = [interface for interface in interfaces if interface.get("interfaceType") in EFA_TYPES]
    if not fast:
        return
    if props.count("vpcSecurityGroupIds"):
        allowed = "security groups inside networkInterfaces only"
        yield Violation("vpcSecurityGroupIds", "set beside network interfaces", allowed)
    for interface in interfaces:
        yield from _interface(interface)
    wanted = INTERFACES.get(props.get("instanceType", ""))
    if wanted is not None and len(fast) != wanted:
        got = f"{len(fast)} EFA interfaces"
        yield Violation("networkInterfaces", got, f"{wanted} on {props.get('instanceType')}")


def _interface(interface: Properties) -> Iterator[Violation]:
    card, device = interface.get("networkCardIndex", 0), interface.get("deviceIndex", 0)
    if device > 1:
        yield Violation(interface.at("deviceIndex"), device, "0 or 1")
    if card > 0 and interface.get("interfaceType") != "efa-only":
        kind = interface.get("interfaceType", "ENA")
        yield Violation(interface.at("interfaceType"), f"{kind} on card {card}", "efa-only on cards from 1")
    if interface.has("subnetId"):
        yield Violation(interface.at("subnetId"), "a subnet", "none: the node group chooses it")


POLICY = Policy(
    name="fabric-efa-interfaces",
    title="EFA interfaces are laid out as the machine wants them",
    reason="A wrong card or count fails at launch after an hour in the queue, or leaves bandwidth unused.",
    remedy="One ENA on card 0, efa-only on the others, all cards of the machine.",
    types=("aws:ec2/launchTemplate:LaunchTemplate",),
    judge=judge,
    frameworks=("AWS EFA user guide: instance types and network cards",),
)
