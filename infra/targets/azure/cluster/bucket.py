"""The checkpoint container behind a private endpoint, in a new or existing storage account; a new one is
encrypted, versioned, has lifecycle rules, and is retained by `destroy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_azure_native.storage._inputs import (
    DateAfterCreationArgs,
    DateAfterModificationArgs,
    DeleteRetentionPolicyArgs,
    EncryptionArgs,
    EncryptionIdentityArgs,
    IdentityArgs,
    KeyVaultPropertiesArgs,
    ManagementPolicyActionArgs,
    ManagementPolicyBaseBlobArgs,
    ManagementPolicyDefinitionArgs,
    ManagementPolicyFilterArgs,
    ManagementPolicyRuleArgs,
    ManagementPolicySchemaArgs,
    ManagementPolicyVersionArgs,
    NetworkRuleSetArgs,
    SkuArgs,
    TagFilterArgs,
)
from pulumi_azure_native.storage.blob_container import BlobContainer
from pulumi_azure_native.storage.blob_service_properties import BlobServiceProperties
from pulumi_azure_native.storage.management_policy import ManagementPolicy
from pulumi_azure_native.storage.storage_account import StorageAccount

from infra.common.names import CHECKPOINTS
from infra.stackfile.storage import LifecycleSpec
from infra.targets.azure.cluster.dependencies import ClusterDeps
from infra.targets.azure.cluster.scope import Scope

SUPERSEDED = "trainyard.dev/superseded"
"""Blob index tag that `trainyard_train.checkpointing.lifecycle` sets once a newer checkpoint is complete."""


@dataclass(frozen=True)
class BucketIds:
    """IDs of storage account and container."""

    account: pulumi.Input[str]
    container: pulumi.Input[str]


def make_bucket(scope: Scope, deps: ClusterDeps, name: str, lifecycle: LifecycleSpec) -> BucketIds:
    """Make account and container, unless they exist already."""
    spec, groups, endpoints = scope.spec, deps.groups, deps.endpoints
    if spec.storage_group is not None:
        group = f"/subscriptions/{spec.subscription}/resourceGroups/{spec.storage_group}"
        account_id = f"{group}/providers/Microsoft.Storage/storageAccounts/{spec.storage_account}"
        endpoints.make("storage", account_id, "blob", "privatelink.blob.core.windows.net")
        return BucketIds(account_id, f"{account_id}/blobServices/default/containers/{name}")
    days = lifecycle.checkpoint_days(spec.LEAST_DELETED_DAYS)
    account = blob_account(scope, deps, "storage", spec.storage_account)
    endpoints.make("storage", account.id, "blob", "privatelink.blob.core.windows.net")
    service = BlobServiceProperties(
        scope.named("storage"),
        blob_services_name="default",
        account_name=account.name,
        resource_group_name=groups.data,
        is_versioning_enabled=True,
        # Versions that the rules delete stay so long, too.
        delete_retention_policy=DeleteRetentionPolicyArgs(enabled=days > 0, days=days or None),
        container_delete_retention_policy=DeleteRetentionPolicyArgs(
            enabled=True, days=lifecycle.deleted_days
        ),
        opts=scope.options(retain_on_delete=True),
    )
    ManagementPolicy(
        scope.named("storage"),
        management_policy_name="default",
        account_name=account.name,
        resource_group_name=groups.data,
        policy=ManagementPolicySchemaArgs(rules=_rules(lifecycle, name)),
        opts=scope.options(depends_on=[service], retain_on_delete=True),
    )
    return BucketIds(account.id, container(scope, deps, account, "bucket", name, depends_on=[service]).id)


def blob_account(
    scope: Scope, deps: ClusterDeps, role: str, name: str, *, serves_nfs: bool = False
) -> StorageAccount:
    """Make a storage account that is reachable from the VNet with an Entra identity only."""
    keys, identity = deps.keys, deps.identities.keys.id
    return StorageAccount(
        scope.named(role),
        account_name=name,
        resource_group_name=deps.groups.data,
        location=scope.region,
        kind="StorageV2",
        # Replicated between zones of one region: a copy in another region may be under other laws.
        sku=SkuArgs(name="Standard_ZRS" if scope.spec.zones else "Standard_LRS"),
        access_tier="Hot",
        identity=IdentityArgs(type="UserAssigned", user_assigned_identities=[identity]),
        encryption=EncryptionArgs(
            key_source="Microsoft.Keyvault",
            encryption_identity=EncryptionIdentityArgs(encryption_user_assigned_identity=identity),
            # Without a version: Azure follows the key's rotation.
            key_vault_properties=KeyVaultPropertiesArgs(key_name=keys.data.name, key_vault_uri=keys.uri),
            require_infrastructure_encryption=True,
        ),
        allow_blob_public_access=False,
        allow_shared_key_access=False,
        allow_cross_tenant_replication=False,
        is_local_user_enabled=False,
        minimum_tls_version="TLS1_2",
        # NFS 3.0 has no TLS; its packets do not leave the VNet.
        enable_https_traffic_only=not serves_nfs,
        enable_nfs_v3=serves_nfs or None,
        is_hns_enabled=serves_nfs or None,
        public_network_access="Disabled",
        network_rule_set=NetworkRuleSetArgs(default_action="Deny", bypass="None"),
        tags=scope.tags,
        opts=scope.options(
            depends_on=[keys.right], protect=scope.spec.deletion_protection, retain_on_delete=True
        ),
    )


def container(
    scope: Scope,
    deps: ClusterDeps,
    account: StorageAccount,
    role: str,
    name: str,
    *,
    depends_on: Sequence[pulumi.Resource] = (),
) -> BlobContainer:
    """Create a container, which is retained with its blobs."""
    return BlobContainer(
        scope.named(role),
        container_name=name,
        account_name=account.name,
        resource_group_name=deps.groups.data,
        public_access="None",
        opts=scope.options(
            depends_on=depends_on, protect=scope.spec.deletion_protection, retain_on_delete=True
        ),
    )


def _rules(lifecycle: LifecycleSpec, container: str) -> list[ManagementPolicyRuleArgs]:
    """No object is deleted by age only: a paused job keeps its last checkpoint at any age.

    A copy of a marked checkpoint outside of the folder of checkpoints has the mark too, and is not deleted.

    Blocks that are part of no blob need no rule: Azure drops them after a week.
    """
    superseded = ManagementPolicyDefinitionArgs(
        filters=ManagementPolicyFilterArgs(
            blob_types=["blockBlob"],
            prefix_match=[f"{container}/{CHECKPOINTS}"],
            blob_index_match=[TagFilterArgs(name=SUPERSEDED, op="==", value="true")],
        ),
        actions=ManagementPolicyActionArgs(
            base_blob=ManagementPolicyBaseBlobArgs(
                delete=DateAfterModificationArgs(
                    days_after_modification_greater_than=lifecycle.superseded_days
                )
            )
        ),
    )
    old, deleted = (
        ManagementPolicyDefinitionArgs(
            filters=ManagementPolicyFilterArgs(blob_types=["blockBlob"], prefix_match=prefixes),
            actions=ManagementPolicyActionArgs(
                version=ManagementPolicyVersionArgs(
                    delete=DateAfterCreationArgs(days_after_creation_greater_than=days)
                )
            ),
        )
        for prefixes, days in ((None, lifecycle.deleted_days), ([f"{container}/{CHECKPOINTS}"], 0))
    )
    rules = {"superseded": superseded, "old-versions": old, "deleted-checkpoints": deleted}
    return [
        ManagementPolicyRuleArgs(name=name, type="Lifecycle", enabled=True, definition=definition)
        for name, definition in rules.items()
    ]
