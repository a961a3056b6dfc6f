"""Policy: a stack with a declared residency uses no CDN and no S3 Transfer Acceleration."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_equal

EDGE = {
    "aws:cloudfront/distribution:Distribution": ("enabled", True, False),
    "aws:s3/bucketAccelerateConfiguration:BucketAccelerateConfiguration": ("status", "Enabled", "Suspended"),
    "aws:s3/bucketAccelerateConfigurationV2:BucketAccelerateConfigurationV2": (
        "status",
        "Enabled",
        "Suspended",
    ),
    "gcp:compute/backendBucket:BackendBucket": ("enableCdn", True, False),
}
"""Type → property of edge caching, with its values for on and off."""


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Caching outside the region must be off."""
    name, on, off = EDGE[resource.type]
    if resource.stack.residency.is_declared and resource.props.get(name) == on:
        yield from must_equal(resource.props, name, off)


POLICY = Policy(
    name="residency-edge-caches",
    title="Data is not cached at the edge",
    reason="An edge cache keeps copies near its readers, also in regions that are not permitted.",
    remedy="Serve from the region itself, or exempt public data.",
    types=tuple(EDGE),
    evaluate=evaluate,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
