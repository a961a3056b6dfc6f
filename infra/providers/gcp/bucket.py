"""The checkpoint bucket: folders that rename in one step, encrypted, private, kept when the stack goes.

A bucket with a hierarchical namespace keeps no versions; what is deleted can be had back for a month.
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

from infra.providers.gcp.identity import team_folder
from infra.providers.gcp.keys import Keys
from infra.providers.gcp.scope import Scope

SUPERSEDED_DAYS = 7
"""After its custom time, which the trainer sets on a checkpoint once a newer one is complete."""
UNFINISHED_DAYS = 7
DELETED_DAYS = 30


def make_bucket(scope: Scope, name: str, keys: Keys, teams: Iterable[str]) -> None:
    """Make the bucket, unless it is there already, and a folder of its own for each team."""
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
        soft_delete_policy=BucketSoftDeletePolicyArgs(retention_duration_seconds=DELETED_DAYS * 24 * 3600),
        lifecycle_rules=_lifecycle(),
        force_destroy=False,
        labels=scope.labels,
        opts=scope.options(protect=scope.spec.deletion_protection, retain_on_delete=True),
    )
    root = Folder(
        scope.named("checkpoints"),
        bucket=bucket.name,
        name="checkpoints/",
        opts=scope.options(retain_on_delete=True),
    )
    for team in teams:
        team_folder(scope, team, bucket.name, root)


def _lifecycle() -> list[BucketLifecycleRuleArgs]:
    """Nothing goes by age alone: a paused job keeps its last checkpoint, however old that is."""
    superseded = BucketLifecycleRuleConditionArgs(days_since_custom_time=SUPERSEDED_DAYS)
    unfinished = BucketLifecycleRuleConditionArgs(age=UNFINISHED_DAYS)
    rules = (("Delete", superseded), ("AbortIncompleteMultipartUpload", unfinished))
    return [
        BucketLifecycleRuleArgs(action=BucketLifecycleRuleActionArgs(type=action), condition=condition)
        for action, condition in rules
    ]
