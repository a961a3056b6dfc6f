"""Creates the engine's state backend on Azure: a versioned storage account and a Key Vault key.

A repeated call corrects the settings of what exists.

Storage account and vault accept Entra identities only, and even the subscription's owner has no right to read
blobs; so the engine's user needs the roles that the call returns.
"""

import re
from typing import Any

from infra.clients.azure import AzureClient
from infra.errors import InputError, Problem
from infra.targets.azure.stackfile.target import AzureSpec
from infra.targets.backend import BackendSetup, StateLocation

CONTAINER, KEY = "pulumi", "state"
RETENTION_DAYS = 30
"""Days for which deleted data can be restored."""
GROUPS, STORAGE, VAULTS = "2021-04-01", "2023-05-01", "2023-07-01"
"""Versions of Azure Resource Manager's API (REST reference: Resources, Storage, Key Vault)."""
_NAME = re.compile(r"^[a-z][a-z0-9]{2,23}$")
"""Pattern of names that are valid for both storage accounts and vaults."""


def make(location: StateLocation, spec: AzureSpec, azure: AzureClient) -> BackendSetup:
    """Make account, container, vault and key, or put right what exists.

    Raises InputError for a name that is not allowed or that exists in another region,
    AzureRefusedError for what Azure refuses: a name that is taken.
    """
    name = location.bucket
    if not _NAME.match(name):
        allowed = "3 to 24 lower-case letters and digits, a letter first"
        raise InputError([Problem("bucket", name, allowed, "name the storage account for the state")])
    group = f"/subscriptions/{spec.subscription}/resourceGroups/{name}-state"
    account = f"{group}/providers/Microsoft.Storage/storageAccounts/{name}"
    vault = f"{group}/providers/Microsoft.KeyVault/vaults/{name}"
    azure.put(group, GROUPS, {"location": location.region, "tags": dict(location.tags)})
    _check_region(azure, account, location)
    container = _make_storage(azure, account, location, spec)
    key = _make_key(azure, vault, location, spec)
    return BackendSetup(
        url=f"azblob://{CONTAINER}?storage_account={name}",
        secrets_provider=f"azurekeyvault://{name}.vault.azure.net/keys/{KEY}",
        rights={container: ["Storage Blob Data Contributor"], key: ["Key Vault Crypto User"]},
    )


def _check_region(azure: AzureClient, account: str, location: StateLocation) -> None:
    there = azure.find(account, {"api-version": STORAGE})
    if there is not None and there["location"] != location.region:
        fix = "choose another name, or set the region in which it is"
        raise InputError(
            [Problem("bucket", f"{location.bucket} is in {there['location']}", location.region, fix)]
        )


def _make_storage(azure: AzureClient, account: str, location: StateLocation, spec: AzureSpec) -> str:
    properties: dict[str, Any] = {
        "allowBlobPublicAccess": False,
        "allowCrossTenantReplication": False,
        "allowSharedKeyAccess": False,
        "minimumTlsVersion": "TLS1_2",
        "supportsHttpsTrafficOnly": True,
    }
    sku = "Standard_ZRS" if spec.zones else "Standard_LRS"  # both replicate within the region only
    body = {
        "sku": {"name": sku},
        "kind": "StorageV2",
        "location": location.region,
        "tags": dict(location.tags),
    }
    azure.put(account, STORAGE, {**body, "properties": properties})
    retention = {"enabled": True, "days": RETENTION_DAYS}
    service = {
        "isVersioningEnabled": True,
        "deleteRetentionPolicy": retention,
        "containerDeleteRetentionPolicy": retention,
    }
    azure.put(f"{account}/blobServices/default", STORAGE, {"properties": service})
    container = f"{account}/blobServices/default/containers/{CONTAINER}"
    azure.put(container, STORAGE, {"properties": {"publicAccess": "None"}})
    return container


def _make_key(azure: AzureClient, vault: str, location: StateLocation, spec: AzureSpec) -> str:
    """Make the vault, which refuses to be purged, and its key; a key that exists remains unchanged."""
    properties = {
        "tenantId": spec.tenant,
        "sku": {"family": "A", "name": "standard"},
        "enableRbacAuthorization": True,
        "enablePurgeProtection": True,
    }
    azure.put(
        vault, VAULTS, {"location": location.region, "tags": dict(location.tags), "properties": properties}
    )
    key = f"{vault}/keys/{KEY}"
    operations = ["encrypt", "decrypt", "wrapKey", "unwrapKey"]
    azure.put(key, VAULTS, {"properties": {"kty": "RSA", "keySize": 3072, "keyOps": operations}})
    return key
