"""An IAM role for emergency access to the cluster, with a metric that counts its calls.

CloudTrail records who assumes the role, and the cluster's audit log records its calls; the stack creates no
trail. The role can change neither record: its only AWS permission is to look up the API server's endpoint.
"""

from __future__ import annotations

from typing import Any

import pulumi_aws as aws

from infra.common import names
from infra.targets.aws.cluster.identity import MAX_ROLE_NAME
from infra.targets.aws.cluster.policy import allow, document
from infra.targets.aws.cluster.scope import Scope

SESSION_SECONDS = 3600
METRIC_NAMESPACE, METRIC = "Trainyard", "BreakGlassCalls"


def break_glass_role(scope: Scope, logs: aws.cloudwatch.LogGroup) -> aws.iam.Role:
    """Make the role, with its calls counted from the audit log: an alarm on the metric reports its use."""
    name = names.fit(scope.named("break-glass"), MAX_ROLE_NAME)
    role = aws.iam.Role(
        name,
        # Sessions appear in the audit log under the role's name.
        name=name,
        description=f"{scope.name}: all rights in the cluster, in an emergency",
        assume_role_policy=document(*_trust(scope)),
        max_session_duration=SESSION_SECONDS,
        permissions_boundary=scope.spec.permissions_boundary,
        opts=scope.options(),
    )
    where = allow(["eks:DescribeCluster"], scope.arn("eks", f"cluster/{scope.name}"))
    aws.iam.RolePolicy(name, role=role.name, policy=document(where), opts=scope.options())
    aws.cloudwatch.LogMetricFilter(
        name,
        name=name,
        log_group_name=logs.name,
        pattern=f'{{ $.user.extra.arn[0] = "*:assumed-role/{name}/*" }}',
        metric_transformation=aws.cloudwatch.LogMetricFilterMetricTransformationArgs(
            namespace=METRIC_NAMESPACE, name=METRIC, value="1"
        ),
        region=scope.region,
        opts=scope.options(),
    )
    return role


def _trust(scope: Scope) -> list[Any]:
    """Users sign in with MFA. Role sessions carry no MFA claim, so the identity provider must require it."""
    asked = scope.spec.access.break_glass
    users = [each for each in asked if ":user/" in each]
    roles = [each for each in asked if ":role/" in each]
    factor = {"Bool": {"aws:MultiFactorAuthPresent": "true"}}
    take = ["sts:AssumeRole"]
    return [
        *([allow(take, Principal={"AWS": users}, Condition=factor)] if users else []),
        *([allow(take, Principal={"AWS": roles})] if roles else []),
    ]
