"""Policy: buckets are encrypted with a customer-managed key."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import must_be_set, must_equal


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The default encryption of the bucket or account names a customer-managed key."""
    props = resource.props
    if resource.type.startswith("gcp:"):
        yield from must_be_set(props, "encryption.defaultKmsKeyName", "the name of a customer-managed key")
    elif resource.type.startswith("azure-native:"):
        yield from must_equal(
            props, "encryption.keySource", "Microsoft.Keyvault", default="Microsoft.Storage"
        )
    else:
        for rule in props.blocks("rules"):
            default = rule.block("applyServerSideEncryptionByDefault")
            if default.get("sseAlgorithm") not in ("aws:kms", "aws:kms:dsse"):
                algorithm = default.get("sseAlgorithm", "nothing")
                yield Violation(default.at("sseAlgorithm"), algorithm, "aws:kms or aws:kms:dsse")
            yield from must_be_set(default, "kmsMasterKeyId", "a customer-managed key")


POLICY = Policy(
    name="security-bucket-keys",
    title="Buckets are encrypted with a customer-managed key",
    reason="The key is a second control: access to the bucket alone does not decrypt the data.",
    remedy="Name a customer-managed key as the bucket's default.",
    types=(
        "aws:s3/bucketServerSideEncryptionConfiguration:BucketServerSideEncryptionConfiguration",
        "aws:s3/bucketServerSideEncryptionConfigurationV2:BucketServerSideEncryptionConfigurationV2",
        "gcp:storage/bucket:Bucket",
        "azure-native:storage:StorageAccount",
    ),
    evaluate=evaluate,
    frameworks=("AWS FSBP S3.17", "NIST SP 800-53 SC-28", "NIST SP 800-53 SC-12"),
)
