"""Managed identities and their roles: control plane, nodes, keys, users, each team's jobs, and datasets."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native.authorization._inputs import PermissionArgs
from pulumi_azure_native.authorization.role_assignment import RoleAssignment
from pulumi_azure_native.authorization.role_definition import RoleDefinition
from pulumi_azure_native.managedidentity.federated_identity_credential import FederatedIdentityCredential
from pulumi_azure_native.managedidentity.user_assigned_identity import UserAssignedIdentity

from infra.common import names
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.queue import TeamSpec
from infra.targets.azure.cluster.scope import Groups, Scope

ROLES = {
    "AcrPull": "7f951dda-4ed3-4680-a7ca-43fe172d538d",
    "Azure Kubernetes Service Cluster User Role": "4abbcc35-e782-43d8-92c5-2d3f1bd2253f",
    "Azure Kubernetes Service RBAC Reader": "7f6c6a51-bcf8-42ba-9220-52d62157d7db",
    "Contributor": "b24988ac-6180-42a0-ab88-20f7382dd24c",
    "Key Vault Contributor": "f25e0fa2-a7c8-4377-a976-54943a77a395",
    "Key Vault Crypto Service Encryption User": "e147488a-f6f5-4113-8e2d-b22465e65bf6",
    "Key Vault Crypto User": "12338af0-0e69-4776-bea7-57ae8d297424",
    "Managed Identity Operator": "f1a07417-d97a-45cb-824c-7a7467783830",
    "Network Contributor": "4d97b98b-1d4f-4787-a291-c67834d212e7",
    "Reader": "acdd72a7-3385-48ef-bd42-f606fba81ae7",
    "Storage Blob Data Reader": "2a2b9908-6ea1-4ae2-8e65-a410df84e7d1",
}
"""Azure's built-in roles (Azure RBAC: built-in roles, read 2026-11-22)."""
CLIENT_ID = "azure.workload.identity/client-id"
"""Annotation of a service account with the client ID of its pods' identity."""
_BLOBS = "Microsoft.Storage/storageAccounts/blobServices/containers/blobs"
_BLOB_ACTIONS = ("read", "write", "delete", "add/action", "tags/read", "tags/write")
"""Blob actions of a trainer; Azure's built-in role could also delete the container."""
USES_IDENTITY = {"azure.workload.identity/use": "true"}
"""Label of pods to which AKS gives the token of their service account's identity."""


@dataclass(frozen=True)
class Identities:
    """Managed identities of the control plane, the nodes and the keys' users."""

    control_plane: UserAssignedIdentity
    nodes: UserAssignedIdentity
    keys: UserAssignedIdentity
    """Identity by which disks, filesystem and storage account use the data key; retained together with
    them."""


def make_identities(scope: Scope, groups: Groups) -> Identities:
    """Create the identities; their rights are declared beside the resources that they apply to."""
    return Identities(
        control_plane=_identity(scope, "control-plane", groups.cluster, scope.options()),
        nodes=_identity(scope, "nodes", groups.cluster, scope.options()),
        keys=_identity(scope, "keys", groups.data, scope.options(retain_on_delete=True)),
    )


def node_rights(scope: Scope, identities: Identities) -> list[pulumi.Resource]:
    """The control plane assigns VMs the nodes' identity, which pulls images."""
    operator = grant(
        scope,
        "control-plane-nodes",
        identities.control_plane,
        "Managed Identity Operator",
        identities.nodes.id,
    )
    if scope.spec.registry is None:
        return [operator]
    return [operator, grant(scope, "nodes-registry", identities.nodes, "AcrPull", scope.spec.registry)]


def human_access(scope: Scope, cluster: pulumi.Output[str], teams: Sequence[TeamSpec]) -> None:
    """Let viewers in, and teams to their namespaces, where their rights are; the cluster names its admins."""
    viewers = scope.spec.access.viewers
    of_teams = {group for team in teams for group in team.groups} - {*viewers, *scope.spec.access.admins}
    user = ("user", "Azure Kubernetes Service Cluster User Role")
    reader = ("reader", "Azure Kubernetes Service RBAC Reader")
    assignments = [("viewers", group, role) for group in viewers for role in (user, reader)]
    assignments += [("teams", group, user) for group in sorted(of_teams)]
    for kind, group, (name, role) in assignments:
        RoleAssignment(
            scope.named(f"{kind}-{name}-{group}"),
            scope=cluster,
            role_definition_id=role_id(scope, role),
            principal_id=group,
            principal_type="Group",
            opts=scope.options(),
        )


def trainer_role(scope: Scope, group: pulumi.Input[str]) -> pulumi.Output[str]:
    """Make the role for writing checkpoints, for a resource group; return its ID."""
    group_id = pulumi.Output.concat(f"/subscriptions/{scope.spec.subscription}/resourceGroups/", group)
    role = RoleDefinition(
        scope.named("trainer"),
        role_name=f"{scope.name}-{scope.digest}: trainer",
        description="Reads, writes, tags and deletes blobs",
        role_type="CustomRole",
        scope=group_id,
        assignable_scopes=[group_id],
        permissions=[PermissionArgs(data_actions=[f"{_BLOBS}/{action}" for action in _BLOB_ACTIONS])],
        opts=scope.options(),
    )
    return role.id


def team_identity(
    scope: Scope,
    team: str,
    group: pulumi.Input[str],
    issuer: pulumi.Input[str],
    *,
    container: pulumi.Input[str],
    role: pulumi.Input[str],
) -> UserAssignedIdentity:
    """Give the jobs of a team an identity, which may read and write their own folder of the container."""
    namespace = names.team_namespace(team)
    identity = _pods_identity(scope, namespace, namespace, group, issuer)
    RoleAssignment(
        scope.named(f"{namespace}-checkpoints"),
        scope=container,
        role_definition_id=role,
        principal_id=identity.principal_id,
        principal_type="ServicePrincipal",
        condition=_own_folder(f"{names.team_folder(team)}/"),
        condition_version="2.0",
        opts=scope.options(),
    )
    return identity


def datasets_identity(
    scope: Scope,
    datasets: Sequence[DatasetSpec],
    group: pulumi.Input[str],
    issuer: pulumi.Input[str],
    *,
    own_account: pulumi.Input[str],
) -> UserAssignedIdentity:
    """Create the identity of the Jobs that stage datasets: it may read the stack's sources only."""
    identity = _pods_identity(scope, "datasets", names.STORAGE_NAMESPACE, group, issuer)
    for dataset in datasets:
        container, _, path = dataset.source.removeprefix("az://").partition("/")
        account = dataset.account or own_account
        RoleAssignment(
            scope.named(f"dataset-{dataset.name}"),
            scope=pulumi.Output.concat(account, "/blobServices/default/containers/", container),
            role_definition_id=role_id(scope, "Storage Blob Data Reader"),
            principal_id=identity.principal_id,
            principal_type="ServicePrincipal",
            condition=_own_folder(path) if path else None,
            condition_version="2.0" if path else None,
            opts=scope.options(),
        )
    return identity


def _pods_identity(
    scope: Scope, role: str, namespace: str, group: pulumi.Input[str], issuer: pulumi.Input[str]
) -> UserAssignedIdentity:
    """An identity that pods of a namespace have, by the tokens of its default service account."""
    identity = _identity(scope, role, group, scope.options())
    FederatedIdentityCredential(
        scope.named(role),
        federated_identity_credential_resource_name="jobs",
        resource_group_name=group,
        resource_name_=identity.name,
        issuer=issuer,
        subject=f"system:serviceaccount:{namespace}:default",
        audiences=["api://AzureADTokenExchange"],
        opts=scope.options(),
    )
    return identity


def grant(
    scope: Scope,
    name: str,
    identity: UserAssignedIdentity,
    role: str,
    to: pulumi.Input[str],
    *,
    retain_on_delete: bool = False,
) -> RoleAssignment:
    """Give an identity a role on one thing."""
    return RoleAssignment(
        scope.named(name),
        scope=to,
        role_definition_id=role_id(scope, role),
        principal_id=identity.principal_id,
        # Entra may not know a new identity yet; with its type given, it is not looked up.
        principal_type="ServicePrincipal",
        opts=scope.options(retain_on_delete=retain_on_delete),
    )


def role_id(scope: Scope, role: str) -> str:
    """Full ID of a built-in role."""
    definitions = "providers/Microsoft.Authorization/roleDefinitions"
    return f"/subscriptions/{scope.spec.subscription}/{definitions}/{ROLES[role]}"


def _identity(
    scope: Scope, role: str, group: pulumi.Input[str], options: pulumi.ResourceOptions
) -> UserAssignedIdentity:
    return UserAssignedIdentity(
        scope.named(role),
        resource_name_=scope.named(role),
        resource_group_name=group,
        location=scope.region,
        tags=scope.tags,
        opts=options,
    )


def _own_folder(prefix: str) -> str:
    """An ABAC condition: only the folder's blobs and listings (Azure: ABAC for Blob storage)."""
    is_list = f"ActionMatches{{'{_BLOBS}/read'}} AND SubOperationMatches{{'Blob.List'}}"
    others = [f"ActionMatches{{'{_BLOBS}/{action}'}}" for action in _BLOB_ACTIONS if action != "read"]
    is_read = f"ActionMatches{{'{_BLOBS}/read'}} AND NOT SubOperationMatches{{'Blob.List'}}"
    neither = " AND ".join(f"!({each})" for each in (is_read, *others))
    inside = f"(({neither}) OR (@Resource[{_BLOBS}:path] StringLike '{prefix}*'))"
    listed = f"(!({is_list}) OR (@Request[{_BLOBS}:prefix] StringStartsWith '{prefix}'))"
    return f"{inside} AND {listed}"
