"""KMS keys: one for the control plane (secrets, logs, queue), one for data (disks, filesystems, bucket).

Data outlives the cluster, so the data key is retained when the stack is destroyed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import pulumi
import pulumi_aws as aws

from infra.targets.aws.cluster.policy import Statement, allow, document
from infra.targets.aws.cluster.scope import Scope

_USE = ["kms:Encrypt", "kms:Decrypt", "kms:ReEncrypt*", "kms:GenerateDataKey*", "kms:DescribeKey"]


@dataclass(frozen=True)
class Keys:
    """ARNs of the keys."""

    cluster: pulumi.Input[str]
    """ARN of the control plane's key; empty where the control plane exists already and nothing else uses
    the key."""
    data: pulumi.Input[str]


def make_keys(scope: Scope) -> Keys:
    """Make the keys; for data the stack can name one, such as that of a stack that was before."""
    cluster: pulumi.Input[str] = ""
    if scope.spec.existing_cluster is None or scope.spec.interruption_queue:
        cluster = _key(scope, "cluster", _logs(scope), _events(scope)).arn
    if scope.spec.kms_key:
        return Keys(cluster, scope.spec.kms_key)
    data = _key(scope, "data", *_scaling_groups(scope), _linked_filesystems(scope), is_retained=True)
    return Keys(cluster, data.arn)


def use_of_data_key(scope: Scope, service: str, *actions: str) -> Statement:
    """Allow a role the data key through one service: by its alias, which is known before the key is."""
    through = {"StringEquals": {"kms:ViaService": f"{service}.{scope.region}.amazonaws.com"}}
    if scope.spec.kms_key:
        return allow(actions, scope.spec.kms_key, Condition=through)
    alias = {"ForAnyValue:StringEquals": {"kms:ResourceAliases": _alias(scope, "data")}}
    return allow(actions, scope.arn("kms", "key/*"), Condition={**through, **alias})


def _key(scope: Scope, role: str, *uses: Statement, is_retained: bool = False) -> aws.kms.Key:
    owner = {"AWS": f"arn:{scope.partition}:iam::{scope.spec.account}:root"}
    key = aws.kms.Key(
        scope.named(f"{role}-key"),
        description=f"{scope.name}: {role}",
        # Without the account as a principal, nobody could change the key again.
        policy=document(allow(["kms:*"], "*", Principal=owner), *uses),
        enable_key_rotation=True,
        multi_region=False,
        deletion_window_in_days=30,
        region=scope.region,
        opts=scope.options(
            protect=is_retained and scope.spec.deletion_protection, retain_on_delete=is_retained
        ),
    )
    aws.kms.Alias(
        scope.named(f"{role}-key"),
        name=_alias(scope, role),
        target_key_id=key.key_id,
        region=scope.region,
        opts=scope.options(),
    )
    return key


def _alias(scope: Scope, role: str) -> str:
    return f"alias/{scope.name}-{role}"


def _logs(scope: Scope) -> Statement:
    logs = {"ArnLike": {"kms:EncryptionContext:aws:logs:arn": scope.arn("logs", "log-group:*")}}
    service = {"Service": f"logs.{scope.region}.amazonaws.com"}
    return allow(_USE, "*", Principal=service, Condition=logs)


def _events(scope: Scope) -> Statement:
    """EventBridge writes to the interruption queue, which is encrypted too."""
    account = {"StringEquals": {"aws:SourceAccount": scope.spec.account}}
    principal = {"Service": "events.amazonaws.com"}
    return allow(["kms:GenerateDataKey", "kms:Decrypt"], "*", Principal=principal, Condition=account)


def _scaling_groups(scope: Scope) -> tuple[Statement, Statement]:
    """Scaling groups start nodes by their own role; without the key, nodes end as soon as they begin."""
    role = _service_role(scope, "autoscaling.amazonaws.com/AWSServiceRoleForAutoScaling")
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    grant = allow(["kms:CreateGrant"], "*", Principal={"AWS": "*"}, Condition={**role, **for_aws})
    return allow(_USE, "*", Principal={"AWS": "*"}, Condition=role), grant


def _linked_filesystems(scope: Scope) -> Statement:
    """FSx reads and writes a linked bucket by a role that it makes for each filesystem."""
    through = {"kms:ViaService": f"s3.{scope.region}.amazonaws.com"}
    condition = _service_role(scope, "s3.data-source.lustre.fsx.amazonaws.com/*", through)
    return allow(_USE, "*", Principal={"AWS": "*"}, Condition=condition)


def _service_role(
    scope: Scope, path: str, through: Mapping[str, str] = MappingProxyType({})
) -> dict[str, dict[str, str]]:
    """Return the condition that the caller is a service-linked role of this account.

    AWS makes such a role when its service is first used, and KMS takes no policy that names as principal a
    role that does not exist yet (KMS API reference, CreateKey).
    """
    return {
        "StringEquals": {"kms:CallerAccount": scope.spec.account, **through},
        "ArnLike": {"aws:PrincipalArn": scope.role_arn(f"aws-service-role/{path}")},
    }
