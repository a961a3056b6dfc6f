"""Judgement of a stack that exists: what a failed update has created without its companions."""

from typing import Any

from policies.standing import bare

BUCKET = "urn:pulumi:s::p::aws:s3/bucket:Bucket::data"
TLS = {
    "Effect": "Deny",
    "Principal": "*",
    "Action": "s3:*",
    "Resource": "*",
    "Condition": {"Bool": {"aws:SecureTransport": "false"}},
}


def stored(kind: str, name: str, **inputs: Any) -> dict[str, Any]:
    urn = f"urn:pulumi:s::p::{kind}::{name}"
    return {"urn": urn, "type": kind, "custom": True, "id": name, "inputs": inputs, "outputs": inputs}


MADE = stored("aws:s3/bucket:Bucket", "data", bucket="data-1")
COMPANIONS = [
    stored("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "block", bucket="data-1"),
    stored("aws:s3/bucketPolicy:BucketPolicy", "tls", bucket="data-1", policy={"Statement": [TLS]}),
    stored(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "sse",
        bucket="data-1",
    ),
]


def test_a_bucket_that_was_made_before_the_update_failed_is_bare() -> None:
    found = bare([MADE, COMPANIONS[0]], {})
    assert {finding.resource.urn for finding in found} == {BUCKET}
    assert [f"{finding.violation.got}" for finding in found] == [
        "no BucketServerSideEncryptionConfiguration",
        "no BucketPolicy",
    ]


def test_a_whole_bucket_a_read_one_and_an_exempt_one_are_not() -> None:
    assert bare([MADE, *COMPANIONS], {}) == []
    assert bare([{**MADE, "external": True}], {}) == []
    exemption = {
        "policy": "security-bucket-companions",
        "resource": "aws:s3/bucket:Bucket::data",
        "owner": "security",
        "reason": "an access point guards it",
        "expires": "2199-01-01",
    }
    assert bare([MADE], {"trainyard:exemptions": [exemption]}) == []
