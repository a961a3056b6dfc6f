"""Policy: where a residency is declared, all regions of a dual-region Google Cloud bucket and of an S3
multi-region access point are permitted.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import arn_region, must_be_permitted


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Each part of a dual-region bucket, and each region behind a multi-region access point."""
    placement = resource.props.block("customPlacementConfig")
    for index, location in enumerate(placement.texts("dataLocations")):
        yield from must_be_permitted(resource, placement.at(f"dataLocations[{index}]"), location)
    for region in resource.props.blocks("details.regions"):
        name = region.get("bucketRegion") or arn_region(region.get("bucketArn", ""))
        yield from must_be_permitted(resource, region.at("bucketRegion"), name or "a region not stated")


POLICY = Policy(
    name="residency-multi-region-buckets",
    title="Multi-region buckets lie in permitted regions",
    reason="`location: EU` covers many regions, and a dual-region bucket names its own elsewhere.",
    remedy="Name permitted regions in `dataLocations`, or use a bucket of one region.",
    types=("gcp:storage/bucket:Bucket", "aws:s3control/multiRegionAccessPoint:MultiRegionAccessPoint"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("GDPR Art. 44", "CSA CCM DSP-19"),
)
