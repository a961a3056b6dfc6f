"""What the stand-in asks of AWS in the provider's place."""

from __future__ import annotations

import pytest

from rehearsal.aws.requests import requests


@pytest.mark.parametrize(
    ("region", "told"),
    [
        ("us-east-1", {}),  # the one region that S3 refuses to be told
        ("us-gov-west-1", {"CreateBucketConfiguration": {"LocationConstraint": "us-gov-west-1"}}),
    ],
)
def test_a_bucket_is_asked_for_in_every_region(region: str, told: dict[str, object]) -> None:
    (request,) = requests("aws:s3/bucket:Bucket", "bucket", {"bucket": "checkpoints", "region": region})
    assert request.parameters == {"Bucket": "checkpoints", **told}
