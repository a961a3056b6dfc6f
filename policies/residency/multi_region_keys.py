"""Policy: where a residency is declared, AWS KMS keys are not multi-region keys."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A multi-region key has its material in every region that asks for it."""
    if resource.stack.residency.is_declared:
        yield from must_equal(resource.props, "multiRegion", False, default=False)


POLICY = Policy(
    name="residency-multi-region-keys",
    title="Encryption keys belong to one region",
    reason="A replica of a key decrypts the data, and one call replicates a multi-region key.",
    remedy="Create a single-region key; it cannot be changed in place.",
    types=("aws:kms/key:Key", "aws:kms/externalKey:ExternalKey"),
    evaluate=evaluate,
    frameworks=("NIST SP 800-53 SC-12", "NIST SP 800-53 SA-9(5)"),
)
