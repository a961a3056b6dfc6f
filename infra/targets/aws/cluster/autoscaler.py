"""IAM role, node group tags and settings of the Cluster Autoscaler on AWS.

EKS tags the scaling group of every managed node group with the cluster's name. The stack's own tag
`trainyard.dev/autoscaled` marks those of autoscaled pools, so that the autoscaler removes no idle nodes of
pools with a fixed size.

The autoscaler reads labels and taints of an empty group from EKS (DescribeNodegroup), and resources that EC2
does not know from the node group's tags (cloudprovider/aws/README.md of Cluster Autoscaler 1.35).
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

import catalog
from infra.common import names
from infra.operator_settings.autoscaler import AutoscalerSettings
from infra.targets.aws.cluster.identity import associate, pod_role
from infra.targets.aws.cluster.policy import allow
from infra.targets.aws.cluster.scope import Scope
from infra.targets.aws.stackfile.groups import NodeGroup

AUTOSCALED_TAG = "trainyard.dev/autoscaled"
GPU_LABEL = "k8s.amazonaws.com/accelerator"
"""Label of nodes with GPUs: the autoscaler counts only GPUs as their use, and waits until GPUs are
allocatable."""
_RESOURCES = "k8s.io/cluster-autoscaler/node-template/resources"
_ALIKE = (
    *("nodegroup-name", "eks.amazonaws.com/nodegroup-image"),
    *("eks.amazonaws.com/sourceLaunchTemplateId", "eks.amazonaws.com/sourceLaunchTemplateVersion"),
    *("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type"),
)
"""Labels that differ between markets and zones of one pool, besides those that the autoscaler ignores by
default."""


def settings(cluster: str, stack: str, region: str) -> AutoscalerSettings:
    """Return the autoscaler's settings; the tags are EKS's for the cluster and ours for the stack."""
    tags = {f"k8s.io/cluster-autoscaler/{cluster}": "owned", AUTOSCALED_TAG: stack}
    return AutoscalerSettings("aws", cluster, region, tags, _ALIKE)


def autoscaler_identity(scope: Scope, cluster: pulumi.Input[str]) -> aws.eks.PodIdentityAssociation:
    """Let it look at groups, machine types and templates, and resize the groups with both tags, no other.

    Looking cannot be limited to some groups: EC2 and Auto Scaling know no resources for these calls.
    """
    look = [
        *(f"autoscaling:Describe{what}" for what in ("AutoScalingGroups", "AutoScalingInstances")),
        "autoscaling:DescribeScalingActivities",
        *("ec2:DescribeInstanceTypes", "ec2:DescribeLaunchTemplateVersions"),
    ]
    tags = settings(scope.cluster_name, scope.name, scope.region).group_tags
    only = {"StringEquals": {f"aws:ResourceTag/{key}": value for key, value in tags.items()}}
    groups = scope.arn("autoscaling", "autoScalingGroup:*:autoScalingGroupName/eks-*")
    role = pod_role(
        scope,
        names.AUTOSCALER,
        statements=[
            allow(look, "*"),
            allow(["eks:DescribeNodegroup"], scope.arn("eks", f"nodegroup/{scope.cluster_name}/*")),
            allow(
                ["autoscaling:SetDesiredCapacity", "autoscaling:TerminateInstanceInAutoScalingGroup"],
                groups,
                Condition=only,
            ),
        ],
    )
    return associate(scope, role, cluster, namespace=names.AUTOSCALER, service_account=names.AUTOSCALER)


def group_tags(group: NodeGroup) -> dict[str, str]:
    """Tags of a node group: what its nodes have and EC2 does not know of, for a group without nodes."""
    if not group.is_autoscaled:
        return {}
    resources = catalog.fabric(group.pool.fabric).pod_resources
    return {f"{_RESOURCES}/{name}": str(number) for name, number in resources.items()}


def let_it_resize(scope: Scope, group: NodeGroup, made: aws.eks.NodeGroup) -> None:
    """Tag the scaling group behind a node group."""
    aws.autoscaling.Tag(
        scope.named(group.role),
        autoscaling_group_name=made.resources.apply(scaling_group),
        tag=aws.autoscaling.TagTagArgs(key=AUTOSCALED_TAG, value=scope.name, propagate_at_launch=False),
        region=scope.region,
        opts=scope.options(),
    )


def scaling_group(resources: Sequence[aws.eks.outputs.NodeGroupResource]) -> str:
    """Return the name of the scaling group behind a node group."""
    (behind,) = resources
    (group,) = behind.autoscaling_groups or []
    return str(group.name)
