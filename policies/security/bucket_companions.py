"""Policy: an S3 bucket has encryption, a public access block and a TLS-only bucket policy."""

from collections.abc import Iterator

from policies.documents import statements
from policies.policy import Policy, Resource, Severity, Violation
from policies.security.tls import refuses_http

ENCRYPTION = "BucketServerSideEncryptionConfiguration"
PUBLIC_ACCESS_BLOCK = "BucketPublicAccessBlock"
TLS_POLICY = "BucketPolicy"


def evaluate(resource: Resource) -> Iterator[Violation]:
    """Check that each companion exists, separately or inline; other policies evaluate its content."""
    beside = {
        other.type.rpartition(":")[2].removesuffix("V2")
        for other in resource.related_resources.pointing_at(resource, "bucket", "bucket")
    }
    if ENCRYPTION not in beside and not _encrypts_inline(resource):
        yield _missing(ENCRYPTION, "one for this bucket, with a customer-managed key")
    if PUBLIC_ACCESS_BLOCK not in beside:
        yield _missing(PUBLIC_ACCESS_BLOCK, "one for this bucket")
    if TLS_POLICY not in beside and not any(map(refuses_http, statements(resource.props, "policy"))):
        yield _missing(TLS_POLICY, "one for this bucket that denies plain HTTP")


def _encrypts_inline(resource: Resource) -> bool:
    rule = resource.props.block("serverSideEncryptionConfiguration").block("rule")
    return rule.has("applyServerSideEncryptionByDefault.kmsMasterKeyId")


def _missing(kind: str, allowed: str) -> Violation:
    return Violation("bucket", f"no {kind}", allowed)


POLICY = Policy(
    name="security-bucket-companions",
    title="Buckets have encryption, public access block and TLS policy",
    reason="In S3 these are separate resources; without them the account's defaults apply.",
    remedy="Declare it, and let its `bucket` be this bucket's name or id.",
    types=("aws:s3/bucket:Bucket", "aws:s3/bucketV2:BucketV2"),
    together_with=(f"aws:s3/*:{ENCRYPTION}*", f"aws:s3/*:{PUBLIC_ACCESS_BLOCK}", f"aws:s3/*:{TLS_POLICY}"),
    evaluate=evaluate,
    severity=Severity.CRITICAL,
    frameworks=(
        "AWS FSBP S3.5",
        "AWS FSBP S3.8",
        "AWS FSBP S3.17",
        "CIS AWS Foundations 2.1.4",
        "NIST SP 800-53 AC-3",
        "NIST SP 800-53 SC-28",
    ),
)
