"""Policy: launch templates for reserved capacity name no placement group."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.unknowns import PropertyBlock

RESERVED_MARKET = "capacity-block"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A launch template for reserved capacity names no placement group."""
    props = resource.props
    # A placement that is not known is only reported on reserved capacity.
    if not props.has("placement") or not _is_reserved(props):
        return
    if any(props.has(f"placement.{name}") for name in ("groupName", "groupId")):
        yield Violation("placement.groupName", "a placement group on reserved capacity", "none")


def _is_reserved(props: PropertyBlock) -> bool:
    target = props.block("capacityReservationSpecification").block("capacityReservationTarget")
    market = props.get("instanceMarketOptions.marketType")
    return market == RESERVED_MARKET or any(target.keys())


POLICY = Policy(
    name="spot-reservations-placement",
    title="Reserved capacity has no placement group",
    reason="A reservation has a fixed placement; launches with a placement group fail.",
    remedy="Drop the placement group from templates of reservations and capacity blocks.",
    types=("aws:ec2/launchTemplate:LaunchTemplate",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-2(2)",),
)
