"""IAM roles of the control plane, nodes, flow logs, backups, add-ons, teams and datasets, and their Pod
Identity associations.
"""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
import pulumi_aws as aws

from infra.common import names
from infra.stackfile.dataset import DatasetSpec
from infra.targets.aws.cluster.keys import use_of_data_key
from infra.targets.aws.cluster.policy import Statement, allow, assumed_by, document
from infra.targets.aws.cluster.scope import Scope

POD_IDENTITY = "169.254.170.23/32"
"""Address of the EKS Pod Identity agent on each node (EKS: Pod Identity Agent)."""
MAX_ROLE_NAME = 64
"""Maximum length of a role's name (IAM user guide, IAM and STS quotas)."""


def cluster_role(scope: Scope) -> pulumi.Output[str]:
    """Role of the control plane."""
    trust = assumed_by("eks.amazonaws.com", "sts:TagSession")
    return _role(scope, "cluster", trust, managed=["AmazonEKSClusterPolicy"])


def node_role(scope: Scope) -> pulumi.Output[str]:
    """Role of nodes: join, and pull images. The rights of pods are their own, by Pod Identity."""
    managed = ["AmazonEKSWorkerNodePolicy", "AmazonEC2ContainerRegistryPullOnly"]
    return _role(scope, "node", assumed_by("ec2.amazonaws.com"), managed=managed)


def flow_log_role(scope: Scope, log_group: str) -> pulumi.Output[str]:
    """Role by which the VPC writes its flow logs into one log group."""
    account = {"StringEquals": {"aws:SourceAccount": scope.spec.account}}
    write = allow(
        ["logs:CreateLogStream", "logs:PutLogEvents", "logs:DescribeLogStreams"],
        scope.arn("logs", f"log-group:{log_group}:*"),
    )
    return _role(
        scope, "flow-logs", assumed_by("vpc-flow-logs.amazonaws.com", Condition=account), statements=[write]
    )


def backup_role(scope: Scope) -> pulumi.Output[str]:
    """Role by which AWS Backup reads a filesystem and fills a vault."""
    managed = ["service-role/AWSBackupServiceRolePolicyForBackup"]
    return _role(scope, "backup", assumed_by("backup.amazonaws.com"), managed=managed)


def pod_role(
    scope: Scope, role: str, *, managed: Sequence[str] = (), statements: Sequence[Statement] = ()
) -> pulumi.Output[str]:
    """Role that pods take by EKS Pod Identity."""
    trust = assumed_by("pods.eks.amazonaws.com", "sts:TagSession")
    return _role(scope, role, trust, managed=managed, statements=statements)


def team_role(scope: Scope, team: str, bucket: str) -> pulumi.Output[str]:
    """Role of a team's jobs: it reaches the team's folder of the bucket, and nothing else."""
    folder = names.team_folder(team)
    arn = f"arn:{scope.partition}:s3:::{bucket}"
    # A prefix without the slash would list the folders of teams whose names begin with this one's.
    below = {"StringLike": {"s3:prefix": [f"{folder}/*"]}}
    objects = [
        *("s3:GetObject", "s3:PutObject", "s3:DeleteObject", "s3:AbortMultipartUpload"),
        *("s3:ListMultipartUploadParts", "s3:GetObjectTagging", "s3:PutObjectTagging"),
    ]
    statements = [
        allow(["s3:ListBucket"], arn, Condition=below),
        allow(objects, f"{arn}/{folder}/*"),
        use_of_data_key(scope, "s3", "kms:Decrypt", "kms:GenerateDataKey"),
    ]
    return pod_role(scope, names.team_namespace(team), statements=statements)


def datasets_role(scope: Scope, datasets: Sequence[DatasetSpec]) -> pulumi.Output[str]:
    """Role of the Jobs that stage datasets: it may read the stack's sources only."""
    statements = []
    for bucket, path in sorted(_sources(datasets)):
        arn = f"arn:{scope.partition}:s3:::{bucket}"
        below = {"StringLike": {"s3:prefix": [path, f"{path}*"]}}
        statements.append(allow(["s3:ListBucket"], arn, Condition=below))
        statements.append(allow(["s3:GetObject"], f"{arn}/{path}{'*' if path.endswith('/') else ''}"))
    return pod_role(scope, "datasets", statements=statements)


def _sources(datasets: Sequence[DatasetSpec]) -> set[tuple[str, str]]:
    """Bucket and path of each source."""
    found = (dataset.source.removeprefix("s3://").partition("/") for dataset in datasets)
    return {(bucket, path) for bucket, _, path in found}


def associate(
    scope: Scope,
    role: pulumi.Output[str],
    cluster: pulumi.Input[str],
    *,
    namespace: str,
    service_account: str,
) -> aws.eks.PodIdentityAssociation:
    """Give the role to the pods of a service account."""
    return aws.eks.PodIdentityAssociation(
        scope.named(f"{namespace}-{service_account}"),
        cluster_name=cluster,
        namespace=namespace,
        service_account=service_account,
        role_arn=role,
        region=scope.region,
        opts=scope.options(),
    )


def _role(
    scope: Scope, role: str, trust: str, *, managed: Sequence[str] = (), statements: Sequence[Statement] = ()
) -> pulumi.Output[str]:
    """Make a role, and return its ARN: its users wait for its rights, and are deleted before them."""
    name = scope.named(role)
    made = aws.iam.Role(
        scope.named(role, MAX_ROLE_NAME),
        assume_role_policy=trust,
        permissions_boundary=scope.spec.permissions_boundary,
        opts=scope.options(),
    )
    rights: list[pulumi.CustomResource] = [
        aws.iam.RolePolicyAttachment(
            f"{name}-{policy.rpartition('/')[2]}",
            role=made.name,
            policy_arn=f"arn:{scope.partition}:iam::aws:policy/{policy}",
            opts=scope.options(),
        )
        for policy in managed
    ]
    if statements:
        policy = document(*statements)
        rights.append(aws.iam.RolePolicy(name, role=made.name, policy=policy, opts=scope.options()))
    return pulumi.Output.all(made.arn, *(right.id for right in rights)).apply(lambda found: str(found[0]))
