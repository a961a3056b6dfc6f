"""The checkpoint bucket: versioned, encrypted, private, TLS only, retained when the stack is destroyed."""

from __future__ import annotations

import pulumi
import pulumi_aws as aws

from infra.common.names import CHECKPOINTS
from infra.stackfile.storage import LifecycleSpec
from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.policy import document
from infra.targets.aws.cluster.scope import Scope

LINKED = "filesystem"
"""Prefix in the bucket of the objects that are linked to the filesystem's files."""
SUPERSEDED_TAG = ("trainyard.dev/superseded", "true")
"""Tag that the trainer puts on a checkpoint once a newer one is complete."""


def make_bucket(scope: Scope, name: str, keys: Keys, lifecycle: LifecycleSpec) -> list[pulumi.Resource]:
    """Make the bucket, unless it exists already; return its locks: nothing is put there without them."""
    if scope.spec.existing_bucket:
        return []
    bucket = aws.s3.Bucket(
        scope.named("bucket"),
        bucket=name,
        force_destroy=False,
        region=scope.region,
        opts=scope.options(protect=scope.spec.deletion_protection, retain_on_delete=True),
    )
    return [
        _encryption(scope, bucket, keys),
        _no_public_access(scope, bucket),
        _versioning(scope, bucket),
        _lifecycle(scope, bucket, lifecycle),
        _tls_only(scope, bucket, name),
    ]


def _encryption(
    scope: Scope, bucket: aws.s3.Bucket, keys: Keys
) -> aws.s3.BucketServerSideEncryptionConfiguration:
    default = aws.s3.BucketServerSideEncryptionConfigurationRuleApplyServerSideEncryptionByDefaultArgs(
        sse_algorithm="aws:kms", kms_master_key_id=keys.data
    )
    rule = aws.s3.BucketServerSideEncryptionConfigurationRuleArgs(
        apply_server_side_encryption_by_default=default, bucket_key_enabled=True
    )
    return aws.s3.BucketServerSideEncryptionConfiguration(
        scope.named("bucket"),
        bucket=bucket.bucket,
        rules=[rule],
        region=scope.region,
        opts=scope.options(retain_on_delete=True),
    )


def _no_public_access(scope: Scope, bucket: aws.s3.Bucket) -> aws.s3.BucketPublicAccessBlock:
    return aws.s3.BucketPublicAccessBlock(
        scope.named("bucket"),
        bucket=bucket.bucket,
        block_public_acls=True,
        block_public_policy=True,
        ignore_public_acls=True,
        restrict_public_buckets=True,
        region=scope.region,
        opts=scope.options(retain_on_delete=True),
    )


def _versioning(scope: Scope, bucket: aws.s3.Bucket) -> aws.s3.BucketVersioning:
    return aws.s3.BucketVersioning(
        scope.named("bucket"),
        bucket=bucket.bucket,
        versioning_configuration=aws.s3.BucketVersioningVersioningConfigurationArgs(status="Enabled"),
        region=scope.region,
        opts=scope.options(retain_on_delete=True),
    )


def _lifecycle(
    scope: Scope, bucket: aws.s3.Bucket, lifecycle: LifecycleSpec
) -> aws.s3.BucketLifecycleConfiguration:
    """No object is deleted by age only: a paused job keeps its last checkpoint at any age."""
    key, value = SUPERSEDED_TAG
    everything = aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix="")
    # S3 copies tags along with an object: a copy outside of the checkpoints' folder must live.
    superseded = aws.s3.BucketLifecycleConfigurationRuleFilterArgs(
        and_=aws.s3.BucketLifecycleConfigurationRuleFilterAndArgs(prefix=CHECKPOINTS, tags={key: value})
    )
    checkpoint_days = lifecycle.checkpoint_days(least=1)
    # S3 takes the shorter of two times.
    kept = {
        "": lifecycle.deleted_days,
        CHECKPOINTS: checkpoint_days,
        f"{LINKED}/{CHECKPOINTS}": checkpoint_days,
    }
    expire = aws.s3.BucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs
    rules = [
        aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="superseded",
            status="Enabled",
            filter=superseded,
            expiration=aws.s3.BucketLifecycleConfigurationRuleExpirationArgs(days=lifecycle.superseded_days),
        ),
        *(
            aws.s3.BucketLifecycleConfigurationRuleArgs(
                id="-".join(["noncurrent", *prefix.split("/")]).strip("-"),
                status="Enabled",
                filter=aws.s3.BucketLifecycleConfigurationRuleFilterArgs(prefix=prefix),
                noncurrent_version_expiration=expire(noncurrent_days=days),
            )
            for prefix, days in kept.items()
        ),
        aws.s3.BucketLifecycleConfigurationRuleArgs(
            id="unfinished",
            status="Enabled",
            filter=everything,
            abort_incomplete_multipart_upload=(
                aws.s3.BucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs(
                    days_after_initiation=lifecycle.unfinished_days
                )
            ),
        ),
    ]
    return aws.s3.BucketLifecycleConfiguration(
        scope.named("bucket"),
        bucket=bucket.bucket,
        rules=rules,
        region=scope.region,
        opts=scope.options(retain_on_delete=True),
    )


def _tls_only(scope: Scope, bucket: aws.s3.Bucket, name: str) -> aws.s3.BucketPolicy:
    arn = f"arn:{scope.partition}:s3:::{name}"
    statement = {
        "Effect": "Deny",
        "Principal": "*",
        "Action": "s3:*",
        "Resource": [arn, f"{arn}/*"],
        "Condition": {"Bool": {"aws:SecureTransport": "false"}},
    }
    return aws.s3.BucketPolicy(
        scope.named("bucket"),
        bucket=bucket.bucket,
        policy=document(statement),
        region=scope.region,
        opts=scope.options(retain_on_delete=True),
    )
