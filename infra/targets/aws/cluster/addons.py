"""EKS add-ons, with least-privilege roles by Pod Identity for those that call AWS.

Versions are EKS's default for the cluster's Kubernetes version.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pulumi
import pulumi_aws as aws

from infra.common import names
from infra.targets.aws.cluster.identity import pod_role
from infra.targets.aws.cluster.keys import use_of_data_key
from infra.targets.aws.cluster.policy import Statement, allow
from infra.targets.aws.cluster.scope import Scope


@dataclass(frozen=True)
class _Addon:
    name: str
    service_account: str | None = None
    """Service account of the pods that call AWS; None where no pod does."""
    managed: tuple[str, ...] = ()
    statements: tuple[Statement, ...] = ()
    configuration: Mapping[str, Any] = field(default_factory=dict)


def create_node_addons(scope: Scope, cluster: aws.eks.Cluster) -> list[pulumi.Resource]:
    """Add-ons that a node needs to become ready: network, proxy, identity of pods, health."""
    network = _Addon(
        "vpc-cni",
        "aws-node",
        managed=("AmazonEKS_CNI_Policy",),
        configuration={"enableNetworkPolicy": "true"},
    )
    plain = ("kube-proxy", "eks-pod-identity-agent", "eks-node-monitoring-agent")
    return [_addon(scope, cluster, addon) for addon in (network, *map(_Addon, plain))]


def create_system_addons(
    scope: Scope, cluster: aws.eks.Cluster, system: Sequence[pulumi.Resource]
) -> list[pulumi.Resource]:
    """Add-ons that run on the system pool, and become active only after it exists.

    The drivers of filesystems mount volumes that the stack makes, so they call nothing of AWS.
    """
    on_system = {"nodeSelector": {names.CAPACITY_LABEL: "system"}}
    disks = _Addon(
        "aws-ebs-csi-driver",
        "ebs-csi-controller-sa",
        managed=("service-role/AmazonEBSCSIDriverPolicy",),
        statements=_encrypted_disks(scope),
        configuration={"controller": on_system},
    )
    driver = {"lustre": "aws-fsx-csi-driver", "efs": "aws-efs-csi-driver"}[scope.spec.filesystem.kind]
    wanted = (_Addon("coredns", configuration=on_system), disks, _Addon(driver))
    return [_addon(scope, cluster, addon, system) for addon in wanted]


def _encrypted_disks(scope: Scope) -> tuple[Statement, ...]:
    actions = ("kms:Decrypt", "kms:GenerateDataKeyWithoutPlaintext", "kms:DescribeKey")
    use = use_of_data_key(scope, "ec2", *actions)
    grant = use_of_data_key(scope, "ec2", "kms:CreateGrant")
    for_aws = {"Bool": {"kms:GrantIsForAWSResource": "true"}}
    return use, allow(["kms:CreateGrant"], grant["Resource"], Condition={**grant["Condition"], **for_aws})


def _addon(
    scope: Scope, cluster: aws.eks.Cluster, addon: _Addon, depends_on: Sequence[pulumi.Resource] = ()
) -> aws.eks.Addon:
    identity = None
    if addon.service_account:
        role = pod_role(scope, addon.name, managed=addon.managed, statements=addon.statements)
        identity = [
            aws.eks.AddonPodIdentityAssociationArgs(role_arn=role, service_account=addon.service_account)
        ]
    return aws.eks.Addon(
        scope.named(addon.name),
        cluster_name=cluster.name,
        addon_name=addon.name,
        pod_identity_associations=identity,
        configuration_values=json.dumps(addon.configuration) if addon.configuration else None,
        resolve_conflicts_on_create="OVERWRITE",
        resolve_conflicts_on_update="OVERWRITE",
        region=scope.region,
        opts=scope.options(depends_on=depends_on),
    )
