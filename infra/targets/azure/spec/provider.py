"""The Azure target: an AKS cluster in one region and subscription."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.spec.amd import AmdSpec
from infra.spec.base import Boolean, Cidr, Positive, Spec, matching
from infra.spec.images import PinnedImage
from infra.spec.machine import WithMachines
from infra.spec.provider import ManagedProviderSpec
from infra.spec.storage import USE_THE_BUCKET, FilesystemSpec

GUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_GROUP = rf"/subscriptions/{GUID}/resourceGroups/[^/]+/providers"

Guid = Annotated[
    str,
    matching(
        "azure_guid",
        GUID,
        "an ID such as 00000000-0000-0000-0000-000000000000, in small letters",
        "see `az account show`, or `az ad group show`; a name is not an ID",
    ),
]
Zone = Annotated[
    str, matching("azure_zone", r"[123]", "'1', '2' or '3', in quotes", "Azure numbers a region's zones")
]
StorageAccountName = Annotated[
    str,
    matching(
        "azure_storage_account",
        r"[a-z0-9]{3,24}",
        "3 to 24 lower-case letters and digits, and nobody else's in all of Azure",
        "shorten it, and leave '-' and '.' out",
    ),
]
SubnetId = Annotated[
    str,
    matching(
        "azure_subnet",
        rf"{_GROUP}/Microsoft\.Network/virtualNetworks/[^/]+/subnets/[^/]+",
        "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.Network/virtualNetworks/NAME/subnets/NAME",
        "write the ID that `az network vnet subnet show` gives",
    ),
]
VaultId = Annotated[
    str,
    matching(
        "azure_vault",
        rf"{_GROUP}/Microsoft\.KeyVault/vaults/[^/]+",
        "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.KeyVault/vaults/NAME",
        "write the ID that `az keyvault show` gives",
    ),
]
KeyUrl = Annotated[
    str,
    matching(
        "azure_key",
        r"https://[a-z0-9-]+\.vault\.azure\.net/keys/[A-Za-z0-9-]+/[0-9a-f]{32}",
        "a key with its version: https://VAULT.vault.azure.net/keys/KEY/VERSION",
        "write the ID that `az keyvault key show` gives",
    ),
]
RegistryId = Annotated[
    str,
    matching(
        "azure_registry",
        rf"{_GROUP}/Microsoft\.ContainerRegistry/registries/[^/]+",
        "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.ContainerRegistry/registries/NAME",
        "write the ID that `az acr show` gives",
    ),
]
WorkspaceId = Annotated[
    str,
    matching(
        "azure_workspace",
        rf"{_GROUP}/Microsoft\.OperationalInsights/workspaces/[^/]+",
        "/subscriptions/ID/resourceGroups/GROUP/providers/Microsoft.OperationalInsights/workspaces/NAME",
        "write the ID that `az monitor log-analytics workspace show` gives",
    ),
]
ResourceGroupName = Annotated[str, Field(pattern=r"^[-\w.()]{0,89}[-\w()]$")]


class ExistingAzureNetworkSpec(Spec):
    """Subnets that exist already, in the stack's region, with their way out; they remain."""

    nodes: SubnetId = Field(description="subnet of the nodes")
    api_server: SubnetId = Field(
        description="subnet delegated to Microsoft.ContainerService/managedClusters, a /28 or wider"
    )
    endpoints: SubnetId = Field(description="subnet of the private endpoints of key vault and storage")
    filesystem: SubnetId = Field(description="subnet of the filesystem; NetApp's is delegated to it")


class AzureNetworkSpec(Spec):
    """The cluster's VNet, made by the stack unless `existing` names subnets; pods have their own range."""

    cidr: Cidr = Field(default=IPv4Network("10.64.0.0/16"), description="addresses of the VNet")
    pods: Cidr = Field(default=IPv4Network("10.128.0.0/12"), description="addresses of pods, a /24 per node")
    services: Cidr = Field(default=IPv4Network("10.80.0.0/20"), description="addresses of Services")
    outbound: Literal["nat", "routes"] = Field(
        default="nat", description="a NAT gateway, or routes of the existing network, such as to a firewall"
    )
    existing: ExistingAzureNetworkSpec | None = Field(default=None, description="subnets to use")


class AzureAccessSpec(Spec):
    """Who may use the cluster: groups of Entra. It has no local accounts."""

    admins: tuple[Guid, ...] = Field(min_length=1, description="object IDs of Entra groups that may do all")
    viewers: tuple[Guid, ...] = Field(
        default=(), description="object IDs of Entra groups that may look, secrets apart"
    )
    public_cidrs: tuple[Cidr, ...] = Field(
        default=(), description="networks outside that reach the API server; empty: it is private"
    )


class AzureLustreSpec(FilesystemSpec):
    """Azure Managed Lustre: in one zone, all nodes read and write it in parallel."""

    NO_SNAPSHOTS: ClassVar[str] = f"Azure Managed Lustre has none; {USE_THE_BUCKET}"

    kind: Literal["lustre"]
    capacity_tib: Positive = Field(description="size of the filesystem, in TiB")
    throughput: Literal[40, 125, 250, 500] = Field(default=250, description="MB/s per TiB")
    zone: Zone | None = Field(default=None, description="zone; default: the stack's first one")


class NetAppSpec(FilesystemSpec):
    """Azure NetApp Files: one NFS volume in a pool of its size."""

    NO_SNAPSHOTS: ClassVar[str] = ""

    kind: Literal["netapp"]
    capacity_tib: Positive = Field(description="size of the volume, in TiB")
    service_level: Literal["standard", "premium", "ultra"] = Field(
        default="premium", description="16, 64 or 128 MiB/s per TiB"
    )


class BlobNfsSpec(FilesystemSpec):
    """Blob storage by NFS 3.0: grows by itself, a container per team, for development."""

    NO_SNAPSHOTS: ClassVar[str] = f"Azure backs up no account with NFS 3.0; {USE_THE_BUCKET}"

    kind: Literal["blob-nfs"]
    account: StorageAccountName = Field(description="name of its own storage account")


class ExistingKeysSpec(Spec):
    """Keys that exist already, such as those of a stack that was before; vault and keys stay."""

    vault: VaultId = Field(description="the key vault, with Azure RBAC and purge protection")
    cluster: KeyUrl = Field(description="key of the cluster's secrets")
    data: KeyUrl = Field(description="key of disks, filesystem and storage account")


class AzureSpec(WithMachines, ManagedProviderSpec):
    """AKS with private nodes. A plan looks nothing up, so subscription, tenant and zones are declared
    here."""

    kind: Literal["azure"]
    subscription: Guid = Field(description="ID of the subscription of every resource")
    tenant: Guid = Field(description="ID of the Entra tenant")
    region: str = Field(description="region of every resource")
    zones: tuple[Zone, ...] = Field(
        default=(), max_length=3, description="zones of the nodes; default: a region without zones"
    )
    network: AzureNetworkSpec = Field(default=AzureNetworkSpec(), description="the VNet")
    access: AzureAccessSpec = Field(description="who may use the cluster")
    storage_account: StorageAccountName = Field(
        description="storage account of the object store, whose container is storage.object_store.bucket"
    )
    storage_group: ResourceGroupName | None = Field(
        default=None,
        description="group with the existing storage account and container; default: they are created",
    )
    keys: ExistingKeysSpec | None = Field(default=None, description="keys to use; default: they are created")
    log_workspace: WorkspaceId | None = Field(
        default=None, description="Log Analytics workspace of audit logs; default: one is created"
    )
    registry: RegistryId | None = Field(
        default=None, description="Azure container registry that nodes may pull from"
    )
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    amd: AmdSpec | None = Field(default=None, description="images for pools with AMD GPUs")
    filesystem: Annotated[AzureLustreSpec | NetAppSpec | BlobNfsSpec, Field(discriminator="kind")] = Field(
        description="the shared filesystem, under checkpoints"
    )
    upgrades: Literal["none", "patch"] = Field(
        default="none", description="who upgrades nodes: you, or AKS at week-ends (jobs then restart)"
    )
    deletion_protection: Boolean = Field(
        default=True, description="refuse to delete cluster and data; put it off before a destroy"
    )
    tags: dict[str, str] = Field(default={}, description="tags of every resource, such as owner")

    @property
    def existing_bucket(self) -> bool:
        """Whether account and container exist already, with their owner's rules."""
        return self.storage_group is not None
