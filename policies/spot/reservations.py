"""Policy: launch templates for capacity blocks name no placement group."""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation

BLOCK = "capacity-block"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A launch template for a capacity block names no placement group."""
    props = resource.props
    # A placement that is not known is only reported on a block.
    if not props.has("placement") or props.get("instanceMarketOptions.marketType") != BLOCK:
        return
    if any(props.has(f"placement.{name}") for name in ("groupName", "groupId")):
        yield Violation("placement.groupName", "a placement group on a capacity block", "none")


POLICY = Policy(
    name="spot-reservations-placement",
    title="Capacity blocks have no placement group",
    reason="A capacity block has a fixed placement; launches with a placement group fail.",
    remedy="Drop the placement group from templates of blocks; an on-demand reservation may have its own.",
    types=("aws:ec2/launchTemplate:LaunchTemplate",),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 CP-2(2)",),
)
