"""The checkpoint bucket, new or existing, with a folder per team; a new one is hierarchical, encrypted,
private, has lifecycle rules, and is retained by `destroy`.

In a hierarchical namespace a folder is renamed in one step. Such a bucket keeps no versions; a deleted object
can be restored for `lifecycle.deleted_days`.
"""

from __future__ import annotations

from collections.abc import Iterable

from pulumi_gcp.storage._inputs import (
    BucketEncryptionArgs,
    BucketHierarchicalNamespaceArgs,
    BucketLifecycleRuleActionArgs,
    BucketLifecycleRuleArgs,
    BucketLifecycleRuleConditionArgs,
    BucketSoftDeletePolicyArgs,
)
from pulumi_gcp.storage.bucket import Bucket
from pulumi_gcp.storage.folder import Folder

from infra.common.names import CHECKPOINTS
from infra.stackfile.storage import LifecycleSpec
from infra.targets.gcp.cluster.identity import team_folder
from infra.targets.gcp.cluster.keys import Keys
from infra.targets.gcp.cluster.scope import Scope


def make_bucket(scope: Scope, name: str, keys: Keys, teams: Iterable[str], lifecycle: LifecycleSpec) -> None:
    """Make the bucket, unless it exists already, and a separate folder for each team."""
    if scope.spec.existing_bucket:
        for team in teams:
            team_folder(scope, team, name, None)
        return
    bucket = Bucket(
        scope.named("bucket"),
        name=name,
        location=scope.region,
        project=scope.project,
        storage_class="STANDARD",
        hierarchical_namespace=BucketHierarchicalNamespaceArgs(enabled=True),
        uniform_bucket_level_access=True,
        public_access_prevention="enforced",
        encryption=BucketEncryptionArgs(default_kms_key_name=keys.data),
        soft_delete_policy=BucketSoftDeletePolicyArgs(
            retention_duration_seconds=lifecycle.checkpoint_days(scope.spec.LEAST_DELETED_DAYS) * 24 * 3600
        ),
        lifecycle_rules=_lifecycle(lifecycle),
        force_destroy=False,
        labels=scope.labels,
        opts=scope.options(protect=scope.spec.deletion_protection, retain_on_delete=True),
    )
    root = Folder(
        scope.named("checkpoints"),
        bucket=bucket.name,
        name=CHECKPOINTS,
        opts=scope.options(retain_on_delete=True),
    )
    for team in teams:
        team_folder(scope, team, bucket.name, root)


def _lifecycle(lifecycle: LifecycleSpec) -> list[BucketLifecycleRuleArgs]:
    """No object is deleted by age only: a paused job keeps its last checkpoint at any age."""
    # The custom time is what the trainer sets on a checkpoint once a newer one is complete. Storage Transfer
    # may set one on any object, so the rule is for checkpoints alone.
    superseded = BucketLifecycleRuleConditionArgs(
        days_since_custom_time=lifecycle.superseded_days, matches_prefixes=[CHECKPOINTS]
    )
    unfinished = BucketLifecycleRuleConditionArgs(age=lifecycle.unfinished_days)
    rules = (("Delete", superseded), ("AbortIncompleteMultipartUpload", unfinished))
    return [
        BucketLifecycleRuleArgs(action=BucketLifecycleRuleActionArgs(type=action), condition=condition)
        for action, condition in rules
    ]
