"""The checkpoint bucket on CoreWeave, with versions, lifecycle rules, an audit log and an optional access
policy; `destroy` retains it.
"""

from __future__ import annotations

import pulumi
import pulumi_coreweave as coreweave

from infra.common.bucket_policy import bucket_policy
from infra.common.names import CHECKPOINTS
from infra.stackfile.storage import LifecycleSpec
from infra.targets.coreweave.stackfile.target import CoreweaveSpec


def make_bucket(
    stack: str, name: str, spec: CoreweaveSpec, lifecycle: LifecycleSpec, options: pulumi.ResourceOptions
) -> None:
    """Make the bucket in the stack's zone; nothing current ever expires."""
    retained = pulumi.ResourceOptions(retain_on_delete=True, protect=spec.deletion_protection)
    bucket = coreweave.ObjectStorageBucket(
        f"{stack}-bucket",
        name=name,
        zone=spec.zone,
        tags={"stack": stack},
        opts=pulumi.ResourceOptions.merge(options, retained),
    )
    below = pulumi.ResourceOptions.merge(options, pulumi.ResourceOptions(retain_on_delete=True))
    coreweave.ObjectStorageBucketVersioning(
        f"{stack}-bucket",
        bucket=bucket.name,
        versioning_configuration=coreweave.ObjectStorageBucketVersioningVersioningConfigurationArgs(
            status="Enabled"
        ),
        opts=below,
    )
    coreweave.ObjectStorageBucketSettings(
        f"{stack}-bucket", bucket=bucket.name, audit_logging_enabled=True, opts=below
    )
    coreweave.ObjectStorageBucketLifecycleConfiguration(
        f"{stack}-bucket", bucket=bucket.name, rules=_rules(lifecycle), opts=below
    )
    if policy := spec.bucket_policy:
        # A bucket with a policy rejects all whom it does not name (AI Object Storage: policy evaluation).
        text = bucket_policy(name, policy.teams, policy.administrators)
        coreweave.ObjectStorageBucketPolicy(f"{stack}-bucket", bucket=bucket.name, policy=text, opts=below)


def _rules(lifecycle: LifecycleSpec) -> list[coreweave.ObjectStorageBucketLifecycleConfigurationRuleArgs]:
    """Unfinished uploads and superseded objects are deleted after some days."""
    abort = coreweave.ObjectStorageBucketLifecycleConfigurationRuleAbortIncompleteMultipartUploadArgs
    expire = coreweave.ObjectStorageBucketLifecycleConfigurationRuleNoncurrentVersionExpirationArgs
    return [
        coreweave.ObjectStorageBucketLifecycleConfigurationRuleArgs(
            id="unfinished",
            prefix="",
            status="Enabled",
            abort_incomplete_multipart_upload=abort(days_after_initiation=lifecycle.unfinished_days),
        ),
        *(
            coreweave.ObjectStorageBucketLifecycleConfigurationRuleArgs(
                id=name,
                prefix=prefix,
                status="Enabled",
                noncurrent_version_expiration=expire(noncurrent_days=days),
            )
            for name, prefix, days in (
                ("superseded", "", lifecycle.deleted_days),
                ("deleted-checkpoints", CHECKPOINTS, lifecycle.checkpoint_days(least=1)),
            )
        ),
    ]
