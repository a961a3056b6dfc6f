"""Policy: where a residency is declared, replicas of filesystems, databases, secrets, machine images and
incident records are in permitted regions, and Google Cloud does not choose the regions of a secret.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import must_be_permitted

TARGETS = {
    "aws:efs/replicationConfiguration:ReplicationConfiguration": ("destination", "region"),
    "aws:dynamodb/table:Table": ("replicas", "regionName"),
    "aws:secretsmanager/secret:Secret": ("replicas", "region"),
    "aws:ssmincidents/replicationSet:ReplicationSet": ("regions", "name"),
    "gcp:secretmanager/secret:Secret": ("replication.userManaged.replicas", "location"),
    "azure-native:cosmosdb:DatabaseAccount": ("locations", "locationName"),
    "azure-native:documentdb:DatabaseAccount": ("locations", "locationName"),
    "azure-native:compute:GalleryImageVersion": ("publishingProfile.targetRegions", "name"),
}
"""Type → property with the list of replicas, and property of a replica with its region."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Every replica must be in a permitted region; automatic placement is in none."""
    blocks, name = TARGETS[resource.type]
    for replica in resource.props.blocks(blocks):
        if region := replica.get(name):
            yield from must_be_permitted(resource, replica.at(name), region)
    if resource.stack.residency.is_declared and resource.props.has("replication.auto"):
        yield Violation("replication.auto", "replicas anywhere", "replication.userManaged with locations")


POLICY = Policy(
    name="residency-replication",
    title="Replicas stay in the permitted regions",
    reason="A replica is a copy of the data. Services that replicate name the region in a property.",
    remedy="Replicate to a permitted region, or not at all.",
    types=tuple(TARGETS),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
