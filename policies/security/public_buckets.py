"""Policy: no bucket, blob container or storage account is public: by ACL, policy, IAM member, or a missing
public access block.
"""

from __future__ import annotations

from collections.abc import Iterator

from policies.documents import bindings, statements
from policies.policy import Policy, Resource, Severity, Violation
from policies.rules import independent, must_equal, must_name_members

BLOCKS = ("blockPublicAcls", "blockPublicPolicy", "ignorePublicAcls", "restrictPublicBuckets")
PUBLIC_ACLS = ("public-read", "public-read-write", "authenticated-read")


def evaluate(resource: Resource) -> Iterator[Violation]:
    """All four blocks, no public ACL or policy, prevention enforced, no allUsers member."""
    props = resource.props
    kind = resource.type.rpartition(":")[2]
    if "PublicAccessBlock" in kind:
        for name in BLOCKS:
            yield from must_equal(props, name, True, default=False)
    elif kind == "BlobContainer":
        yield from must_equal(props, "publicAccess", "None", default="None")
    elif resource.type.startswith("azure-native:"):
        yield from must_equal(props, "allowBlobPublicAccess", False, default=False)
    elif resource.type == "gcp:storage/bucket:Bucket":
        yield from must_equal(props, "publicAccessPrevention", "enforced", default="inherited")
        yield from must_equal(props, "uniformBucketLevelAccess", True, default=False)
    if props.get("acl") in PUBLIC_ACLS:
        yield Violation("acl", props.get("acl"), "private")
    for binding in bindings(props):
        yield from must_name_members(binding)
    if kind == "BucketPolicy":
        yield from _public_statements(resource)


@independent
def _public_statements(resource: Resource) -> Iterator[Violation]:
    for statement in statements(resource.props, "policy"):
        if statement.allows and "*" in statement.principals and not statement.condition:
            yield Violation(f"{statement.path}.Principal", "*", "named principals, or a condition")


POLICY = Policy(
    name="security-public-buckets",
    title="Buckets are not public",
    reason="A public bucket exposes checkpoints and datasets, which may belong to others.",
    remedy="Block public access; share through named principals.",
    types=(
        "aws:s3/accountPublicAccessBlock:AccountPublicAccessBlock",
        "aws:s3/bucket:Bucket",
        "aws:s3/bucketV2:BucketV2",
        "aws:s3/bucketAcl*:BucketAcl*",
        "aws:s3/bucketPolicy:BucketPolicy",
        "aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock",
        "gcp:storage/bucket*",
        "azure-native:storage:BlobContainer",
        "azure-native:storage:StorageAccount",
    ),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=("AWS FSBP S3.8", "CIS AWS Foundations 2.1.4", "CIS GCP 5.1", "NIST SP 800-53 AC-3"),
)
