"""Caches at the edge keep copies all over the world."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation

EDGE = {
    "aws:cloudfront/distribution:Distribution": ("enabled", True),
    "aws:s3/bucketAccelerateConfiguration:BucketAccelerateConfiguration": ("status", "Enabled"),
    "aws:s3/bucketAccelerateConfigurationV2:BucketAccelerateConfigurationV2": ("status", "Enabled"),
    "gcp:compute/backendBucket:BackendBucket": ("enableCdn", True),
}
"""Type → the property and value that turn caching at the edge on."""


def judge(resource: Resource) -> Iterator[Violation]:
    """Caching outside the region must be off."""
    name, on = EDGE[resource.type]
    if resource.stack.residency.declared and resource.props.get(name) == on:
        yield Violation(name, str(on).lower(), f"{name} off, or no such resource")


POLICY = Policy(
    name="residency-edge-caches",
    title="Data is not cached at the edge",
    reason="A cache keeps copies near its readers, in regions that the stack does not permit.",
    remedy="Serve from the region itself, or exempt public data.",
    types=tuple(EDGE),
    judge=judge,
    frameworks=("GDPR Art. 44", "NIST SP 800-53 SA-9(5)"),
)
