"""Declares the EKS control plane and its access entries, or uses an existing one; makes its kubeconfig."""

from __future__ import annotations

import base64
import json
from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
import pulumi_aws as aws

from infra.common.kubeconfig import kubeconfig_of
from infra.stackfile.queue import TeamSpec
from infra.targets.aws.cluster.break_glass import break_glass_role
from infra.targets.aws.cluster.identity import cluster_role
from infra.targets.aws.cluster.keys import Keys
from infra.targets.aws.cluster.logs import log_group
from infra.targets.aws.cluster.network import Network
from infra.targets.aws.cluster.scope import Scope
from infra.targets.aws.stackfile.target import ExistingEksSpec

LOGS = ("api", "audit", "authenticator", "controllerManager", "scheduler")
# Viewers see no secrets; AmazonEKSAdminViewPolicy would show them.
_ACCESS_POLICIES = {"admins": "AmazonEKSClusterAdminPolicy", "viewers": "AmazonEKSViewPolicy"}


@dataclass(frozen=True)
class ControlPlane:
    """The cluster, and what may be done once the access entries exist."""

    cluster: aws.eks.Cluster | None
    """Cluster that the stack makes; None for an existing one, which the engine must not change or delete."""
    name: pulumi.Output[str]
    endpoint: pulumi.Output[str]
    authority: pulumi.Output[str]
    """CA certificate of the cluster: PEM, in base64."""
    security_group: pulumi.Output[str]
    """EKS's own security group, which control plane and nodes share."""
    access: list[aws.eks.AccessPolicyAssociation]
    routes: list[aws.vpc.SecurityGroupIngressRule]
    """Security group rules that let runners inside the network connect."""

    @property
    def ca_certificate(self) -> pulumi.Output[str]:
        """CA certificate of the cluster in PEM."""
        return self.authority.apply(lambda text: base64.b64decode(text).decode())


def make_control_plane(scope: Scope, network: Network, keys: Keys, teams: Sequence[TeamSpec]) -> ControlPlane:
    """Make the cluster: private, secrets encrypted, all logs retained, no access but the access
    entries.
    """
    logs = log_group(scope, "control-plane", f"/aws/eks/{scope.name}/cluster", keys)
    spec = scope.spec
    cluster = aws.eks.Cluster(
        scope.name,
        # A fixed name, since the log group and users' kubeconfigs contain it.
        name=scope.name,
        version=scope.kubernetes_version,
        role_arn=cluster_role(scope),
        access_config=aws.eks.ClusterAccessConfigArgs(
            authentication_mode="API", bootstrap_cluster_creator_admin_permissions=False
        ),
        vpc_config=aws.eks.ClusterVpcConfigArgs(
            subnet_ids=network.subnet_ids(spec.zones),
            endpoint_private_access=True,
            endpoint_public_access=bool(spec.access.public_cidrs),
            public_access_cidrs=[str(cidr) for cidr in spec.access.public_cidrs] or None,
        ),
        encryption_config=aws.eks.ClusterEncryptionConfigArgs(
            provider=aws.eks.ClusterEncryptionConfigProviderArgs(key_arn=keys.cluster), resources=["secrets"]
        ),
        enabled_cluster_log_types=list(LOGS),
        # At the end of standard support the version is upgraded: extended support costs six times as much.
        upgrade_policy=aws.eks.ClusterUpgradePolicyArgs(support_type="STANDARD"),
        zonal_shift_config=aws.eks.ClusterZonalShiftConfigArgs(enabled=True),
        bootstrap_self_managed_addons=False,
        deletion_protection=spec.deletion_protection,
        region=scope.region,
        # AWS refuses only when the cluster is deleted; with `protect` the preview already fails.
        opts=scope.options(depends_on=[logs], protect=spec.deletion_protection),
    )
    access = _access(scope, cluster.name, teams)
    if spec.access.break_glass:
        role = break_glass_role(scope, logs)
        access.append(_access_entry(scope, cluster.name, "break-glass", role.arn, _ACCESS_POLICIES["admins"]))
    group = cluster.vpc_config.apply(lambda config: str(config.cluster_security_group_id))
    return ControlPlane(
        cluster,
        cluster.name,
        cluster.endpoint,
        cluster.certificate_authority.apply(lambda authority: str(authority.data)),
        group,
        access,
        _routes(scope, group),
    )


def _routes(scope: Scope, group: pulumi.Input[str]) -> list[aws.vpc.SecurityGroupIngressRule]:
    """Let inside networks connect to the private endpoint: EKS's group permits only the cluster's members.

    (EKS user guide: "Cluster API server endpoint", accessing a private only API server.)
    """
    return [
        aws.vpc.SecurityGroupIngressRule(
            scope.named(f"api-{cidr.network_address}-{cidr.prefixlen}"),
            security_group_id=group,
            cidr_ipv4=str(cidr),
            ip_protocol="tcp",
            from_port=443,
            to_port=443,
            region=scope.region,
            opts=scope.options(),
        )
        for cidr in scope.spec.access.private_cidrs
    ]


def use_control_plane(scope: Scope, spec: ExistingEksSpec, teams: Sequence[TeamSpec]) -> ControlPlane:
    """Use the cluster that the stack names: teams get access; its owner grants it to others."""
    name = pulumi.Output.from_input(spec.name)
    for principal in sorted({each for team in teams for each in team.groups} - {*scope.spec.access.admins}):
        _entry(scope, name, _named("teams", principal), principal, [group_of(principal)])
    return ControlPlane(
        None,
        name,
        pulumi.Output.from_input(spec.endpoint),
        pulumi.Output.from_input(spec.certificate_authority),
        pulumi.Output.from_input(spec.security_group),
        [],
        [],
    )


def group_of(principal: str) -> str:
    """Return the group that an IAM principal is in the cluster: Kubernetes knows no IAM."""
    return f"trainyard:{principal.partition(':iam::')[2]}"


def _access(
    scope: Scope, cluster: pulumi.Input[str], teams: Sequence[TeamSpec]
) -> list[aws.eks.AccessPolicyAssociation]:
    """Grant access to those whom the stack file names: by a policy of EKS, in teams as a group that is bound
    there.
    """
    of_teams = {principal for team in teams for principal in team.groups}
    rights = {
        principal: (group, policy)
        for group, policy in reversed(_ACCESS_POLICIES.items())
        for principal in getattr(scope.spec.access, group)
    }
    made = []
    for principal in (*rights, *sorted(of_teams - rights.keys())):
        group, policy = rights.get(principal, ("teams", ""))
        name = _named(group, principal)
        groups = [group_of(principal)] if principal in of_teams else None
        if policy:
            made.append(_access_entry(scope, cluster, name, principal, policy, groups=groups))
        else:
            _entry(scope, cluster, name, principal, groups)
    return made


def _named(group: str, principal: str) -> str:
    return f"{group}-{principal.partition(':iam::')[2].replace('/', '-')}"


def _entry(
    scope: Scope,
    cluster: pulumi.Input[str],
    name: str,
    principal: pulumi.Input[str],
    groups: list[str] | None,
) -> aws.eks.AccessEntry:
    return aws.eks.AccessEntry(
        scope.named(name),
        cluster_name=cluster,
        principal_arn=principal,
        type="STANDARD",
        kubernetes_groups=groups,
        region=scope.region,
        opts=scope.options(),
    )


def _access_entry(
    scope: Scope,
    cluster: pulumi.Input[str],
    name: str,
    principal: pulumi.Input[str],
    policy: str,
    *,
    groups: list[str] | None = None,
) -> aws.eks.AccessPolicyAssociation:
    """Let a principal in, with a policy of EKS in the whole cluster."""
    return aws.eks.AccessPolicyAssociation(
        scope.named(name),
        cluster_name=cluster,
        principal_arn=principal,
        policy_arn=f"arn:{scope.partition}:eks::aws:cluster-access-policy/{policy}",
        access_scope=aws.eks.AccessPolicyAssociationAccessScopeArgs(type="cluster"),
        region=scope.region,
        opts=scope.options(depends_on=[_entry(scope, cluster, name, principal, groups)]),
    )


def kubeconfig(scope: Scope, control_plane: ControlPlane) -> pulumi.Output[str]:
    """Return a kubeconfig that holds no token: each call asks the AWS CLI for one. Secret nevertheless."""
    # Not usable before its reader has access and can connect.
    dependencies = [each.id for each in (*control_plane.access, *control_plane.routes)]
    parts = pulumi.Output.all(control_plane.endpoint, control_plane.authority, *dependencies)
    return pulumi.Output.secret(parts.apply(lambda known: _kubeconfig(scope, known[0], known[1])))


def _kubeconfig(scope: Scope, endpoint: str, authority: str) -> str:
    which = ["--cluster-name", scope.cluster_name, "--region", scope.region]
    get_token = ["eks", "get-token", *which, "--output", "json"]
    exec_ = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": "aws",
        "args": get_token,
        "interactiveMode": "Never",
    }
    cluster = {"server": endpoint, "certificate-authority-data": authority}
    return json.dumps(kubeconfig_of(scope.name, cluster, {"exec": exec_}))
