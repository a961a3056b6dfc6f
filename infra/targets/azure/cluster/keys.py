"""Key vault and keys, new or existing: one key for the cluster's secrets, one for data (disks, filesystem,
storage account). Also the disk encryption set.

Azure retains a deleted vault for months, and data outlives the cluster, so vault and keys are retained.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import pulumi
from pulumi_azure_native.authorization.role_assignment import RoleAssignment
from pulumi_azure_native.compute._inputs import EncryptionSetIdentityArgs, KeyForDiskEncryptionSetArgs
from pulumi_azure_native.compute.disk_encryption_set import DiskEncryptionSet
from pulumi_azure_native.keyvault._inputs import (
    ActionArgs,
    KeyPropertiesArgs,
    KeyRotationPolicyAttributesArgs,
    LifetimeActionArgs,
    NetworkRuleSetArgs,
    RotationPolicyArgs,
    SkuArgs,
    TriggerArgs,
    VaultPropertiesArgs,
)
from pulumi_azure_native.keyvault.key import Key
from pulumi_azure_native.keyvault.vault import Vault

from infra.common.names import fit
from infra.targets.azure.cluster.identity import Identities, grant
from infra.targets.azure.cluster.network import PrivateEndpoints
from infra.targets.azure.cluster.scope import Groups, Scope

DELETED_DAYS = 90
ROTATION = "P90D"
"""Rotation period of the data key; the cluster's key is rotated by hand, since AKS takes a version
(docs/azure.md)."""
KEY_OPERATIONS = ("encrypt", "decrypt", "wrapKey", "unwrapKey", "sign", "verify")
_MAX_VAULT = 24


@dataclass(frozen=True)
class EncryptionKey:
    """A key whose ID is known once its users have their rights."""

    id: pulumi.Input[str]
    url: pulumi.Input[str]
    """URL of the key with its version."""
    name: str


@dataclass(frozen=True)
class Keys:
    """The vault and its keys."""

    vault: pulumi.Input[str]
    uri: pulumi.Input[str]
    cluster: EncryptionKey
    data: EncryptionKey
    private: pulumi.Resource
    """Resource that makes the name of the vault resolve inside the VNet."""
    private_id: pulumi.Input[str]
    """ID of the vault's private endpoint."""
    right: pulumi.Resource
    """Role assignment that lets the keys' identity use the data key."""


def make_keys(scope: Scope, groups: Groups, identities: Identities, endpoints: PrivateEndpoints) -> Keys:
    """Make the vault and its keys, or use those that the stack names; give rights on them."""
    existing = scope.spec.keys
    if existing:
        vault_id: pulumi.Input[str] = existing.vault
        uri = f"https://{existing.vault.rpartition('/')[2].lower()}.vault.azure.net/"
        found = {role: _named(existing.vault, getattr(existing, role)) for role in _NAMES}
    else:
        vault = _vault(scope, groups.data)
        vault_id, uri = vault.id, f"https://{_vault_name(scope)}.vault.azure.net/"
        found = {role: _made(_key(scope, role, vault, groups.data), role) for role in _NAMES}
    private, private_id = endpoints.make("vault", vault_id, "vault", "privatelink.vaultcore.azure.net")
    user, encryptor = "Key Vault Crypto User", "Key Vault Crypto Service Encryption User"
    rights = {
        "cluster": [
            grant(scope, "control-plane-key", identities.control_plane, user, found["cluster"].id),
            # AKS reaches a private vault by an endpoint that it makes itself.
            grant(scope, "control-plane-vault", identities.control_plane, "Key Vault Contributor", vault_id),
        ],
        "data": [
            # The bucket is retained, and its data can be read only with the key.
            grant(scope, "data-key", identities.keys, encryptor, found["data"].id, retain_on_delete=True)
        ],
    }
    cluster, data = (replace(key, url=_after(key.url, rights[role])) for role, key in found.items())
    return Keys(vault_id, uri, cluster, data, private, private_id, rights["data"][0])


_NAMES = {"cluster": "cluster", "data": "data"}
"""Purpose of a key → name of the key in the vault."""


def _made(key: Key, role: str) -> EncryptionKey:
    return EncryptionKey(key.id, key.key_uri_with_version, _NAMES[role])


def _named(vault: str, url: str) -> EncryptionKey:
    """A key by its URL: `https://VAULT.vault.azure.net/keys/NAME/VERSION`."""
    name = url.split("/")[4]
    return EncryptionKey(f"{vault}/keys/{name}", url, name)


def _after(url: pulumi.Input[str], rights: Sequence[RoleAssignment]) -> pulumi.Output[str]:
    """The key, known once its users have their rights."""
    return pulumi.Output.all(url, *(right.id for right in rights)).apply(lambda known: str(known[0]))


def _vault_name(scope: Scope) -> str:
    """Return the vault's name, which must be unique in all of Azure."""
    return f"{fit(scope.name, _MAX_VAULT - 9).rstrip('-')}-{scope.digest}"


def _vault(scope: Scope, group: pulumi.Input[str]) -> Vault:
    return Vault(
        scope.named("vault"),
        vault_name=_vault_name(scope),
        resource_group_name=group,
        location=scope.region,
        properties=VaultPropertiesArgs(
            tenant_id=scope.spec.tenant,
            sku=SkuArgs(family="A", name="premium"),
            enable_rbac_authorization=True,
            enable_soft_delete=True,
            soft_delete_retention_in_days=DELETED_DAYS,
            # Deleting a key destroys all data that it encrypts, so nobody can purge it before that time.
            enable_purge_protection=True,
            public_network_access="Disabled",
            # Disks, storage accounts and Lustre connect as trusted Azure services.
            network_acls=NetworkRuleSetArgs(bypass="AzureServices", default_action="Deny"),
        ),
        tags=scope.tags,
        opts=scope.options_of_data(),
    )


def _key(scope: Scope, role: str, vault: Vault, group: pulumi.Input[str]) -> Key:
    rotation = RotationPolicyArgs(
        attributes=KeyRotationPolicyAttributesArgs(expiry_time="P2Y"),
        lifetime_actions=[
            LifetimeActionArgs(
                action=ActionArgs(type="rotate"), trigger=TriggerArgs(time_after_create=ROTATION)
            )
        ],
    )
    return Key(
        scope.named(f"{role}-key"),
        key_name=_NAMES[role],
        vault_name=vault.name,
        resource_group_name=group,
        properties=KeyPropertiesArgs(
            kty="RSA-HSM",
            key_size=3072,
            key_ops=list(KEY_OPERATIONS),
            rotation_policy=rotation if role == "data" else None,
        ),
        tags=scope.tags,
        opts=scope.options_of_data(),
    )


def make_disk_encryption(
    scope: Scope, group: pulumi.Input[str], identities: Identities, keys: Keys
) -> pulumi.Output[str]:
    """Make what disks are encrypted by; its ID is known once the control plane may use it."""
    made = DiskEncryptionSet(
        scope.named("disks"),
        disk_encryption_set_name=scope.named("disks"),
        resource_group_name=group,
        location=scope.region,
        identity=EncryptionSetIdentityArgs(
            type="UserAssigned", user_assigned_identities=[identities.keys.id]
        ),
        active_key=KeyForDiskEncryptionSetArgs(key_url=keys.data.url),
        encryption_type="EncryptionAtRestWithCustomerKey",
        rotation_to_latest_key_version_enabled=True,
        tags=scope.tags,
        opts=scope.options(),
    )
    reader = grant(scope, "control-plane-disks", identities.control_plane, "Reader", made.id)
    return pulumi.Output.all(made.id, reader.id).apply(lambda known: str(known[0]))
