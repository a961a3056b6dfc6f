"""Policy: a stack that uses a cloud declares its permitted regions (`trainyard:residency`)."""

from collections.abc import Iterator

from policies.policy import EnforcementLevel, Policy, Resource, Severity, Violation
from policies.region import CLOUDS


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Without the list the other residency policies have nothing to compare with."""
    if not resource.stack.residency.is_declared:
        yield Violation("trainyard:residency", "nothing", "{allowed: [eu-*, …]}")


POLICY = Policy(
    name="residency-declared",
    title="Stacks on clouds declare their regions",
    reason="Without a declaration no residency policy applies to the stack.",
    remedy="Set `trainyard:residency` in the stack, or `allowed` of this policy for the whole organisation.",
    types=tuple(f"pulumi:providers:{cloud.types.partition(':')[0]}" for cloud in CLOUDS),
    evaluate=evaluate,
    severity=Severity.MEDIUM,
    level=EnforcementLevel.ADVISORY,
    frameworks=("GDPR Art. 44",),
    parameters={
        "allowed": {
            "type": "array",
            "items": {"type": "string"},
            "description": "Patterns of regions for every stack; a stack's own list can only narrow it.",
        }
    },
)
