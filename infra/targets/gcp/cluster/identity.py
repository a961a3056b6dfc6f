"""The nodes' service account, and IAM grants for users, break-glass access, each team's jobs and datasets."""

from __future__ import annotations

from collections.abc import Sequence

import pulumi
from pulumi_gcp.privilegedaccessmanager._inputs import (
    EntitlementEligibleUserArgs,
    EntitlementPrivilegedAccessArgs,
    EntitlementPrivilegedAccessGcpIamAccessArgs,
    EntitlementPrivilegedAccessGcpIamAccessRoleBindingArgs,
    EntitlementRequesterJustificationConfigArgs,
    EntitlementRequesterJustificationConfigUnstructuredArgs,
)
from pulumi_gcp.privilegedaccessmanager.entitlement import Entitlement
from pulumi_gcp.projects.iam_member import IAMMember
from pulumi_gcp.serviceaccount.account import Account
from pulumi_gcp.storage.bucket_iam_member import BucketIAMMember
from pulumi_gcp.storage.folder import Folder
from pulumi_gcp.storage.managed_folder import ManagedFolder
from pulumi_gcp.storage.managed_folder_iam_member import ManagedFolderIamMember

from infra.common import names
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.queue import TeamSpec
from infra.targets.gcp.cluster.scope import Scope

NODE_ROLES = ("roles/container.defaultNodeServiceAccount", "roles/artifactregistry.reader")
"""Minimum roles of a node: logs, metrics and images (GKE: least privilege service accounts)."""
_HUMAN_ROLES = {"admins": "roles/container.admin", "viewers": "roles/container.viewer"}
_TEAM_ROLE = "roles/container.clusterViewer"
"""Role that only permits connections to the API server; a team's permissions are bound in its namespace."""
METADATA_SERVER = "169.254.169.254/32"
"""Address of GKE's metadata server (Workload Identity), which gives pods tokens and hides the node's;
Cloud DNS answers there too."""
_MAX_ACCOUNT_ID = 30
_MAX_ENTITLEMENT_ID = 63
BREAK_GLASS_SECONDS = 3600


def node_identity(scope: Scope) -> pulumi.Output[str]:
    """Make the nodes' service account; its address is known once it has its rights."""
    account_id = names.fit(scope.named("nodes"), _MAX_ACCOUNT_ID)
    account = Account(
        scope.named("nodes"),
        account_id=account_id,
        display_name=f"{scope.name}: nodes",
        project=scope.project,
        opts=scope.options(),
    )
    # A literal address: policies see at preview which account gets which role.
    member = f"serviceAccount:{account_id}@{scope.project}.iam.gserviceaccount.com"
    rights = [
        _grant(scope, f"nodes-{role.rpartition('/')[2]}", role, member, [account]) for role in NODE_ROLES
    ]
    known = pulumi.Output.all(account.email, *(right.id for right in rights))
    return known.apply(lambda found: str(found[0]))


def human_access(scope: Scope, teams: Sequence[TeamSpec]) -> list[IAMMember]:
    """Grant users access. These roles hold in all clusters of the project: give a stack a separate project.

    In an existing cluster the stack grants access to its teams only; its owner grants all other access.
    """
    admins = [
        (group, role, member)
        for group, role in _HUMAN_ROLES.items()
        for member in getattr(scope.spec.access, group)
    ]
    bindings = [] if scope.spec.existing_cluster else admins
    known = {member for _, _, member in bindings}
    of_teams = {f"group:{group}" for team in teams for group in team.groups}
    bindings = [*bindings, *(("teams", _TEAM_ROLE, member) for member in sorted(of_teams - known))]
    return [
        _grant(scope, f"{group}-{member.replace('/', '-').replace(':', '-')}", role, member)
        for group, role, member in bindings
    ]


def break_glass(scope: Scope) -> None:
    """Let some users take the admins' role in an emergency: PAM asks for a reason, records and ends it.

    There is no approval: in an emergency no approver may be available. A grant is a change of IAM, which the
    Admin Activity log records; that log cannot be switched off.
    """
    members = scope.spec.access.break_glass
    if not members:
        return
    project = f"cloudresourcemanager.googleapis.com/projects/{scope.project}"
    Entitlement(
        scope.named("break-glass"),
        entitlement_id=names.fit(scope.named("break-glass"), _MAX_ENTITLEMENT_ID),
        location="global",
        parent=f"projects/{scope.project}",
        max_request_duration=f"{BREAK_GLASS_SECONDS}s",
        eligible_users=[EntitlementEligibleUserArgs(principals=list(members))],
        requester_justification_config=EntitlementRequesterJustificationConfigArgs(
            unstructured=EntitlementRequesterJustificationConfigUnstructuredArgs()  # type: ignore[no-untyped-call]
        ),
        privileged_access=EntitlementPrivilegedAccessArgs(
            gcp_iam_access=EntitlementPrivilegedAccessGcpIamAccessArgs(
                resource=f"//{project}",
                resource_type="cloudresourcemanager.googleapis.com/Project",
                role_bindings=[
                    EntitlementPrivilegedAccessGcpIamAccessRoleBindingArgs(role=_HUMAN_ROLES["admins"])
                ],
            )
        ),
        opts=scope.options(),
    )


def _grant(
    scope: Scope, name: str, role: str, member: str, depends_on: Sequence[pulumi.Resource] = ()
) -> IAMMember:
    return IAMMember(
        scope.named(name),
        project=scope.project,
        role=role,
        member=member,
        opts=scope.options(depends_on=depends_on),
    )


def read_datasets(scope: Scope, datasets: Sequence[DatasetSpec]) -> None:
    """Let the Jobs that stage datasets read the source buckets."""
    for bucket in sorted({each.source.removeprefix("gs://").partition("/")[0] for each in datasets}):
        BucketIAMMember(
            scope.named(f"datasets-{bucket}"),
            bucket=bucket,
            role="roles/storage.objectViewer",
            member=scope.pods_of(names.STORAGE_NAMESPACE, "default"),
            opts=scope.options(),
        )


def team_folder(
    scope: Scope, team: str, bucket: pulumi.Input[str], parent: pulumi.Resource | None
) -> ManagedFolderIamMember:
    """Grant a team's jobs the team's folder of the bucket, and nothing else; `destroy` retains the grant."""
    namespace = names.team_namespace(team)
    options = scope.options(depends_on=[parent] if parent else [], retain_on_delete=True)
    path = f"{names.team_folder(team)}/"
    folder = Folder(scope.named(namespace), bucket=bucket, name=path, opts=options)
    managed = ManagedFolder(
        scope.named(namespace),
        bucket=bucket,
        name=path,
        opts=scope.options(depends_on=[folder], retain_on_delete=True),
    )
    return ManagedFolderIamMember(
        scope.named(namespace),
        bucket=bucket,
        managed_folder=managed.name,
        role="roles/storage.objectUser",
        member=scope.pods_of(namespace, "default"),
        opts=scope.options(),
    )
