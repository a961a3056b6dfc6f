"""Creates CloudWatch log groups, encrypted and retained for a year."""

from __future__ import annotations

import pulumi_aws as aws

from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.scope import Scope

RETENTION_DAYS = 365
"""Retention of logs in days: twelve months, as PCI DSS 10.5.1 requires."""


def log_group(scope: Scope, role: str, name: str, keys: Keys) -> aws.cloudwatch.LogGroup:
    """Make a log group under the name that its writer expects."""
    return aws.cloudwatch.LogGroup(
        scope.named(role),
        name=name,
        kms_key_id=keys.cluster,
        retention_in_days=RETENTION_DAYS,
        region=scope.region,
        opts=scope.options(),
    )
