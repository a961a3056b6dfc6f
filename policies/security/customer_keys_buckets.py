"""Policy: buckets are encrypted with a customer-managed key."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.rules import independent, must_equal, must_have_key
from policies.unknowns import PropertyBlock


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The default encryption of the bucket or account names a customer-managed key."""
    props = resource.props
    if resource.type.startswith("gcp:"):
        yield from must_have_key(props, "encryption.defaultKmsKeyName", "the name of a customer-managed key")
    elif resource.type.startswith("azure-native:"):
        yield from must_equal(
            props, "encryption.keySource", "Microsoft.Keyvault", default="Microsoft.Storage"
        )
    else:
        for rule in props.blocks("rules"):
            yield from _of_rule(rule.block("applyServerSideEncryptionByDefault"))


@independent
def _of_rule(default: PropertyBlock) -> Iterator[Violation]:
    algorithm, allowed = default.get("sseAlgorithm", "nothing"), "aws:kms or aws:kms:dsse"
    if algorithm == "AES256":  # the only encryption that a target of access logs can have
        yield Violation(default.at("sseAlgorithm"), algorithm, f"{allowed}, except for logs", is_advice=True)
        return
    if algorithm not in ("aws:kms", "aws:kms:dsse"):
        yield Violation(default.at("sseAlgorithm"), algorithm, allowed)
    yield from must_have_key(default, "kmsMasterKeyId")


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
