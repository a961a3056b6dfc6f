"""Policy: a launch template's EFA interfaces have the number and layout that its machine type needs."""

from collections.abc import Iterator

import catalog
from policies.policy import Policy, Resource, Violation, parameter
from policies.rules import counted, independent
from policies.unknowns import PropertyBlock

EFA_TYPES = ("efa", "efa-only")
INTERFACES = parameter(
    "object",
    {},
    "EFA interfaces by machine type, over those of the catalogue.",
    additionalProperties={"type": "integer", "minimum": 0},
)
"""Parameter of both policies that count EFA interfaces."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Find interfaces that EC2 would refuse at launch, or accept with fewer EFAs than the machine has."""
    props = resource.props
    interfaces = props.blocks("networkInterfaces")
    if interfaces and (machine := props.get("instanceType", "")):
        yield from check_count(resource, machine)
    if not number_of_efas(props):
        return
    if props.count("vpcSecurityGroupIds"):
        allowed = "security groups inside networkInterfaces only"
        yield Violation("vpcSecurityGroupIds", "set beside network interfaces", allowed)
    for interface in interfaces:
        yield from _interface(interface)


def number_of_efas(template: PropertyBlock) -> int:
    """Return the number of EFA interfaces in a launch template."""
    kinds = (interface.get("interfaceType") for interface in template.blocks("networkInterfaces"))
    return sum(kind in EFA_TYPES for kind in kinds)


def check_count(template: Resource, machine: str) -> Iterator[Violation]:
    """Find a launch template whose number of EFA interfaces differs from its machine type's."""
    wanted = _wanted(template, machine)
    number = number_of_efas(template.props)
    got = counted(number, "EFA interface")
    if wanted is None and number:
        got += f" on {machine}, whose number of EFAs is not in the catalogue"
        yield Violation("networkInterfaces", got, "a machine type of the catalogue, or one in `interfaces`")
    elif wanted is not None and number != wanted:
        yield Violation("networkInterfaces", got, f"{wanted} on {machine}")


def _wanted(template: Resource, machine: str) -> int | None:
    """Return a machine type's EFAs: by the parameter, the catalogue, or the facts in the stack file."""
    own: int | None = template.parameters["interfaces"].get(machine)
    if own is not None:
        return own
    found = catalog.find_machine(machine, "aws")
    if found:
        return found.efa.interfaces if found.efa else None
    target = (template.stack.setting("stack") or {}).get("target") or {}
    facts = (target.get("machines") or {}).get(machine) or {}
    declared: int | None = (facts.get("efa") or {}).get("interfaces")
    return declared


@independent
def _interface(interface: PropertyBlock) -> Iterator[Violation]:
    card, device = interface.get("networkCardIndex", 0), interface.get("deviceIndex", 0)
    if device > 1:
        yield Violation(interface.at("deviceIndex"), device, "0 or 1")
    kind = interface.get("interfaceType", "ENA")
    if (card, device) == (0, 0) and kind == "efa-only":
        yield Violation(
            interface.at("interfaceType"), "efa-only as the primary interface", "interface, or efa"
        )
    if card > 0 and kind != "efa-only":
        yield Violation(interface.at("interfaceType"), f"{kind} on card {card}", "efa-only on cards from 1")
    if interface.has("subnetId"):
        yield Violation(interface.at("subnetId"), "a subnet", "none: the node group chooses it")


POLICY = Policy(
    name="fabric-efa-interfaces",
    title="EFA interfaces have the layout of their machine type",
    reason="A wrong NIC or count fails at launch, after an hour in the queue, or leaves bandwidth unused.",
    remedy="One ENA on card 0, efa-only on the others, all cards of the machine.",
    types=("aws:ec2/launchTemplate:LaunchTemplate",),
    evaluate=evaluate,
    frameworks=("AWS EFA user guide: instance types and network cards",),
    parameters={"interfaces": INTERFACES},
)
