"""Policy: where a residency is declared, ECR registries replicate only to permitted regions."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_permitted


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Each destination of the registry's replication must be permitted."""
    for rule in resource.props.blocks("replicationConfiguration.rules"):
        for destination in rule.blocks("destinations"):
            region = destination.get("region", "no region")
            yield from must_be_permitted(resource, destination.at("region"), region)


POLICY = Policy(
    name="residency-registries",
    title="Registries replicate within the permitted regions",
    reason="Training images hold code, tokenizers and sometimes data; replication copies all of a registry.",
    remedy="Remove the destination, or name a permitted region.",
    types=("aws:ecr/replicationConfiguration:ReplicationConfiguration",),
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
