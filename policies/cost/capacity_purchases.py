"""Policy: capacity blocks and commitments are bought only if the stack's configuration names them
(`trainyard:purchases`).
"""

from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A purchase that cannot be undone is named in the stack."""
    agreed = resource.stack.setting("purchases", [])
    if resource.name not in agreed:
        yield Violation("purchase", "not listed there", "its name in `trainyard:purchases` of the stack")


POLICY = Policy(
    name="cost-capacity-purchases",
    title="Capacity blocks and commitments are bought only with explicit permission",
    reason="The resource buys machines for days or a commitment for years, which cannot be cancelled.",
    remedy="List the resource's name in `trainyard:purchases` of the stack if it is to be bought.",
    types=(
        "aws:ec2/capacityBlockReservation:CapacityBlockReservation",
        "aws:savingsplans/savingsPlan:SavingsPlan",
        "gcp:compute/futureReservation:FutureReservation",
        "gcp:compute/regionCommitment:RegionCommitment",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS Well-Architected COST02-BP05", "FinOps: Rate Optimization"),
)
