"""Lays out the network interfaces of an EC2 machine type, as its launch template lists them."""

from dataclasses import dataclass
from typing import Literal

from catalog import Machine


@dataclass(frozen=True)
class NetworkInterface:
    """One interface of a launch template."""

    card: int
    """`network_card_index` of the launch template."""
    device: int
    """`device_index` of the launch template."""
    kind: Literal["ena", "efa-only"]
    """Interface type. It is never `efa`: an EFA with IP would use an address of the subnet for nothing."""

    @property
    def interface_type(self) -> str | None:
        """`interface_type` of the launch template, which is omitted for an ENA."""
        return None if self.kind == "ena" else self.kind


def network_interfaces(machine: Machine) -> tuple[NetworkInterface, ...]:
    """Lay out the interfaces of an EC2 machine: one ENA for IP, and every EFA that the machine takes.

    The primary interface (card 0, device 0) is an ENA. Card 0 has an EFA at device 1 if it supports one;
    every other card has its EFA at device 0. The number of EFA interfaces decides, not that of the cards, of
    which a machine can have more. Source: EC2 user guide, "Maximize network bandwidth on Amazon EC2 instances
    with multiple network cards". ValueError for a machine of another cloud.
    """
    if machine.cloud != "aws":
        raise ValueError(f"{machine.name} is a machine of {machine.cloud}: only EC2 lays out interfaces")
    primary = NetworkInterface(card=0, device=0, kind="ena")
    if machine.efa is None:
        return (primary,)
    first = 0 if machine.efa.card_0 else 1
    cards = machine.efa.cards or range(first, first + machine.efa.interfaces)
    return (primary, *(NetworkInterface(card, 1 if card == 0 else 0, "efa-only") for card in cards))
