"""Policy: where a residency is declared, S3 buckets replicate only to buckets that the parameter `inside`
lists.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import INSIDE_PARAMETER, must_be_listed

INLINE = ("replicationConfiguration", "replicationConfigurations")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """A bucket's ARN names no region, so each target must be listed as known."""
    blocks = [block for name in INLINE for block in resource.props.blocks(name)]
    for configuration in blocks or [resource.props]:
        for rule in configuration.blocks("rules"):
            target = rule.get("destination.bucket", "")
            yield from must_be_listed(resource, rule.at("destination.bucket"), target)


POLICY = Policy(
    name="residency-bucket-replication",
    title="Buckets replicate to known buckets only",
    reason="The target of a replication is an ARN without a region, so its region cannot be checked.",
    remedy="Add the ARN of a bucket in a permitted region to `inside`, or remove the rule.",
    types=(
        "aws:s3/bucketReplicationConfig:BucketReplicationConfig",
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketV2:BucketV2",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS Control Tower AWS-GR_RESTRICT_S3_CROSS_REGION_REPLICATION", "GDPR Art. 44"),
    parameters=INSIDE_PARAMETER,
)
