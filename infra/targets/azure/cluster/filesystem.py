"""The shared filesystem on Azure: Managed Lustre, NetApp Files, or Blob storage over NFS; and its volumes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pulumi
from pulumi_azure_native.netapp._inputs import (
    AccountEncryptionArgs,
    DailyScheduleArgs,
    EncryptionIdentityArgs,
    ExportPolicyRuleArgs,
    KeyVaultPropertiesArgs,
    ManagedServiceIdentityArgs,
    VolumePropertiesDataProtectionArgs,
    VolumePropertiesExportPolicyArgs,
    VolumeSnapshotPropertiesArgs,
)
from pulumi_azure_native.netapp.account import Account
from pulumi_azure_native.netapp.capacity_pool import CapacityPool
from pulumi_azure_native.netapp.capacity_pool_volume import CapacityPoolVolume
from pulumi_azure_native.netapp.snapshot_policy import SnapshotPolicy
from pulumi_azure_native.storagecache._inputs import (
    AmlFilesystemEncryptionSettingsArgs,
    AmlFilesystemIdentityArgs,
    AmlFilesystemMaintenanceWindowArgs,
    KeyVaultKeyReferenceArgs,
    KeyVaultKeyReferenceSourceVaultArgs,
    SkuNameArgs,
)
from pulumi_azure_native.storagecache.aml_filesystem import AmlFilesystem

from infra.common.subnets import aks_ranges
from infra.stackfile.storage import CheckpointsSpec
from infra.targets.azure.cluster.bucket import blob_account, container
from infra.targets.azure.cluster.dependencies import ClusterDeps
from infra.targets.azure.cluster.scope import Scope
from infra.targets.azure.stackfile.target import AzureLustreSpec, BlobNfsSpec, NetAppSpec
from infra.targets.base import VolumeSource

LUSTRE_DRIVER = "azurelustre.csi.azure.com"
BLOB_DRIVER = "blob.csi.azure.com"
VOLUME = "training"
TIB = 1024**4
_SHARED, _LOGS = "shared", "logs"
"""Containers that belong to no team: shared data, and the logs of all teams' pods."""


def make_filesystem(
    scope: Scope,
    spec: AzureLustreSpec | NetAppSpec | BlobNfsSpec,
    deps: ClusterDeps,
    teams: Sequence[str],
    checkpoints: CheckpointsSpec,
) -> VolumeSource:
    """Make a filesystem of the stack; return how its folders become volumes."""
    if isinstance(spec, AzureLustreSpec):
        return lustre_volumes(scope.named(spec.role("lustre")), _lustre(scope, spec, deps))
    if isinstance(spec, NetAppSpec):
        return netapp_volumes(_netapp(scope, spec, deps, spec.snapshot_retention_days(checkpoints)))
    return _blob_nfs(scope, spec, deps, teams)


def _lustre(scope: Scope, spec: AzureLustreSpec, deps: ClusterDeps) -> AmlFilesystem:
    keys, identity = deps.keys, deps.identities.keys.id
    zone = spec.zone or next(iter(scope.spec.zones), None)
    reference = KeyVaultKeyReferenceArgs(
        key_url=keys.data.url, source_vault=KeyVaultKeyReferenceSourceVaultArgs(id=keys.vault)
    )
    name = scope.named(spec.role("lustre"))
    return AmlFilesystem(
        name,
        aml_filesystem_name=name,
        resource_group_name=deps.groups.cluster,
        location=scope.region,
        sku=SkuNameArgs(name=f"AMLFS-Durable-Premium-{spec.throughput}"),
        storage_capacity_ti_b=spec.capacity_tib,
        filesystem_subnet=deps.network.filesystem,
        zones=[zone] if zone else None,
        maintenance_window=AmlFilesystemMaintenanceWindowArgs(
            day_of_week="Saturday", time_of_day_utc="06:00"
        ),
        identity=AmlFilesystemIdentityArgs(type="UserAssigned", user_assigned_identities=[identity]),
        encryption_settings=AmlFilesystemEncryptionSettingsArgs(key_encryption_key=reference),
        tags=scope.tags,
        opts=scope.options(
            depends_on=[keys.private],
            protect=scope.spec.deletion_protection,
            # The key's URL has its version: a rotation would replace the filesystem by an empty one.
            ignore_changes=["encryptionSettings"],
        ),
    )


def lustre_volumes(name: str, filesystem: AmlFilesystem) -> VolumeSource:
    """Volumes of a Lustre filesystem: a folder is mounted by itself, so that no pod sees another team's."""
    address = filesystem.client_info.apply(lambda info: info.mgs_address)

    def source(path: str) -> dict[str, Any]:
        folder = {"sub-dir": path} if path else {}
        csi = {
            "driver": LUSTRE_DRIVER,
            "volumeHandle": "-".join([name, *path.split("/")]).rstrip("-"),
            "volumeAttributes": {"mgs-ip-address": address, **folder},
        }
        return {"csi": csi, "mountOptions": ["noatime", "flock"]}

    return source


def _netapp(scope: Scope, spec: NetAppSpec, deps: ClusterDeps, snapshot_days: int) -> CapacityPoolVolume:
    group, keys, identity = deps.groups.cluster, deps.keys, deps.identities.keys.id
    level, name = spec.service_level.capitalize(), scope.named(spec.role("netapp"))
    account = Account(
        name,
        account_name=name,
        resource_group_name=group,
        location=scope.region,
        identity=ManagedServiceIdentityArgs(type="UserAssigned", user_assigned_identities=[identity]),
        encryption=AccountEncryptionArgs(
            key_source="Microsoft.KeyVault",
            identity=EncryptionIdentityArgs(user_assigned_identity=identity),
            key_vault_properties=KeyVaultPropertiesArgs(
                key_name=keys.data.name, key_vault_uri=keys.uri, key_vault_resource_id=keys.vault
            ),
        ),
        tags=scope.tags,
        opts=scope.options(depends_on=[keys.private]),
    )
    pool = CapacityPool(
        name,
        pool_name=VOLUME,
        account_name=account.name,
        resource_group_name=group,
        location=scope.region,
        service_level=level,
        size=spec.capacity_tib * TIB,
        tags=scope.tags,
        opts=scope.options(),
    )
    return CapacityPoolVolume(
        name,
        volume_name=VOLUME,
        creation_token=name,
        account_name=account.name,
        # A pool's name output is prefixed with its account's.
        pool_name=pool.name.apply(lambda name: name.rpartition("/")[2]),
        resource_group_name=group,
        location=scope.region,
        service_level=level,
        usage_threshold=spec.capacity_tib * TIB,
        subnet_id=deps.network.filesystem,
        network_features="Standard",
        protocol_types=["NFSv3"],
        encryption_key_source="Microsoft.KeyVault",
        key_vault_private_endpoint_resource_id=keys.private_id,
        export_policy=VolumePropertiesExportPolicyArgs(rules=[_nodes_only(scope)]),
        snapshot_directory_visible=True,
        data_protection=_snapshots(scope, name, account, group, snapshot_days) if snapshot_days else None,
        tags=scope.tags,
        opts=scope.options(protect=scope.spec.deletion_protection),
    )


def _snapshots(
    scope: Scope, name: str, account: Account, group: pulumi.Input[str], days: int
) -> VolumePropertiesDataProtectionArgs:
    """A snapshot each night, in the volume itself: what changes since counts against its size."""
    policy = SnapshotPolicy(
        name,
        snapshot_policy_name=VOLUME,
        account_name=account.name,
        resource_group_name=group,
        location=scope.region,
        enabled=True,
        daily_schedule=DailyScheduleArgs(hour=5, minute=0, snapshots_to_keep=days),
        tags=scope.tags,
        opts=scope.options(),
    )
    return VolumePropertiesDataProtectionArgs(
        snapshot=VolumeSnapshotPropertiesArgs(snapshot_policy_id=policy.id)
    )


def _nodes_only(scope: Scope) -> ExportPolicyRuleArgs:
    """Let root create the teams' folders, from the nodes' range; that of an existing VNet is unknown."""
    existing = scope.spec.network.existing is not None
    network = scope.spec.network.cidr if existing else aks_ranges(scope.spec.network.cidr).nodes
    return ExportPolicyRuleArgs(
        rule_index=1,
        allowed_clients=str(network),
        nfsv3=True,
        nfsv41=False,
        cifs=False,
        unix_read_only=False,
        unix_read_write=True,
        has_root_access=True,
    )


def netapp_volumes(volume: CapacityPoolVolume) -> VolumeSource:
    """Volumes of a NetApp volume, mounted by the nodes' own NFS client."""
    address = volume.mount_targets.apply(lambda targets: str(targets[0].ip_address))

    def source(path: str) -> dict[str, Any]:
        folder = volume.creation_token.apply(lambda token: f"/{token}/{path}" if path else f"/{token}")
        options = ["vers=3", "hard", "nconnect=8", "rsize=262144", "wsize=262144"]
        return {"nfs": {"server": address, "path": folder}, "mountOptions": options}

    return source


def _blob_nfs(scope: Scope, spec: BlobNfsSpec, deps: ClusterDeps, teams: Sequence[str]) -> VolumeSource:
    """A container for each team, one for shared data, one for logs: NFS 3.0 mounts no folder of one."""
    account = blob_account(scope, deps, "nfs", spec.account, serves_nfs=True)
    reached, _ = deps.endpoints.make("nfs", account.id, "blob", "privatelink.blob.core.windows.net")
    names = {"": _SHARED, _LOGS: _LOGS, **{f"checkpoints/{team}": f"checkpoints-{team}" for team in teams}}
    made = {
        path: container(scope, deps, account, f"nfs-{name}", name, depends_on=[reached])
        for path, name in names.items()
    }

    def source(path: str) -> dict[str, Any]:
        attributes: dict[str, pulumi.Input[str]] = {
            "resourceGroup": deps.groups.data,
            "storageAccount": account.name,
            "containerName": made[path].name,
            "protocol": "nfs",
        }
        handle = f"{spec.account}-{names[path]}"
        csi = {"driver": BLOB_DRIVER, "volumeHandle": handle, "volumeAttributes": attributes}
        return {"csi": csi, "mountOptions": ["nolock", "nconnect=4"]}

    return source
