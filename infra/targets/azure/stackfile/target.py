"""The `target` section of an Azure stack: subscription, region, network, access, filesystem, and existing
resources to use.
"""

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.stackfile.amd import AmdSpec
from infra.stackfile.base import Boolean, Cidr, Spec, Tebibytes, matching
from infra.stackfile.images import PinnedImage
from infra.stackfile.storage import USE_THE_BUCKET, FilesystemSpec
from infra.stackfile.target import CloudSpec

GUID = r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_GROUP = rf"/subscriptions/{GUID}/resourceGroups/[^/]+/providers"

Guid = Annotated[
    str,
    matching(
        "azure_guid",
        GUID,
        "an ID such as 00000000-0000-0000-0000-000000000000, in lower case",
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
        "3 to 24 lower-case letters and digits, unique in all of Azure",
        "shorten it, and remove '-' and '.'",
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
    """Existing subnets in the stack's region, with an outbound route.

    They are retained when the stack is destroyed.
    """

    nodes: SubnetId = Field(description="ID of the nodes' subnet")
    api_server: SubnetId = Field(
        description="ID of the API server's subnet, /28 or larger, delegated to"
        " Microsoft.ContainerService/managedClusters"
    )
    endpoints: SubnetId = Field(description="ID of the subnet for private endpoints of key vault and storage")
    filesystem: SubnetId = Field(
        description="ID of the filesystem's subnet; delegated to NetApp if the filesystem is `netapp`"
    )


class AzureNetworkSpec(Spec):
    """The cluster's VNet. The stack creates one unless `existing` is set."""

    cidr: Cidr = Field(default=IPv4Network("10.64.0.0/16"), description="CIDR of the VNet")
    pods: Cidr = Field(
        default=IPv4Network("10.128.0.0/12"),
        description="CIDR of the overlay network of pods, with a /24 per node",
    )
    services: Cidr = Field(default=IPv4Network("10.80.0.0/20"), description="CIDR of Services")
    outbound: Literal["nat", "routes"] = Field(
        default="nat",
        description="outbound traffic through a NAT gateway, or by the routes of `existing`, such as to a"
        " firewall",
    )
    existing: ExistingAzureNetworkSpec | None = Field(default=None, description="existing subnets to use")


class AzureAccessSpec(Spec):
    """Microsoft Entra groups with access to the cluster. Local accounts are disabled."""

    admins: tuple[Guid, ...] = Field(
        min_length=1, description="object IDs of Entra groups with administrator access to the cluster"
    )
    viewers: tuple[Guid, ...] = Field(
        default=(), description="object IDs of Entra groups with read access to the cluster, except Secrets"
    )
    public_cidrs: tuple[Cidr, ...] = Field(
        default=(),
        description="CIDRs that may reach the API server from the public internet; default: none, the"
        " endpoint is private",
    )


class AzureLustreSpec(FilesystemSpec):
    """Azure Managed Lustre: a parallel filesystem in one zone."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = f"Azure Managed Lustre has none; {USE_THE_BUCKET}"

    kind: Literal["lustre"]
    capacity_tib: Tebibytes = Field(alias="capacity", description="size of the filesystem")
    throughput: Literal[40, 125, 250, 500] = Field(
        default=250, description="throughput in MB/s per TiB of capacity"
    )
    zone: Zone | None = Field(
        default=None,
        description="zone of the filesystem; default: that of the pools with InfiniBand, else the first",
    )


class NetAppSpec(FilesystemSpec):
    """Azure NetApp Files: an NFS volume in a capacity pool of the same size."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = ""

    kind: Literal["netapp"]
    capacity_tib: Tebibytes = Field(alias="capacity", description="size of the volume")
    service_level: Literal["standard", "premium", "ultra"] = Field(
        default="premium", description="throughput: 16 (standard), 64 (premium) or 128 (ultra) MiB/s per TiB"
    )


class BlobNfsSpec(FilesystemSpec):
    """Blob storage over NFS 3.0, with elastic capacity and a container per team, for development."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = f"Azure backs up no account with NFS 3.0; {USE_THE_BUCKET}"

    kind: Literal["blob-nfs"]
    account: StorageAccountName = Field(
        description="name of the storage account, separate from the object store's"
    )


class ExistingKeysSpec(Spec):
    """Existing encryption keys. Vault and keys are retained when the stack is destroyed."""

    vault: VaultId = Field(description="ID of the key vault, with Azure RBAC and purge protection")
    cluster: KeyUrl = Field(description="URL of the key that encrypts Kubernetes Secrets (KMS)")
    data: KeyUrl = Field(description="URL of the key that encrypts disks, filesystem and storage account")


class AzureSpec(CloudSpec):
    """AKS with private nodes.

    A preview makes no API calls, so subscription, tenant and zones are declared here.
    """

    LEAST_DELETED_DAYS: ClassVar[int] = 7
    USUAL_SYSTEM: ClassVar = {"machine": "Standard_D8s_v5", "nodes": 3}
    ZONAL_FILESYSTEMS: ClassVar = frozenset({"lustre"})

    kind: Literal["azure"]
    subscription: Guid = Field(description="ID of the subscription of all resources")
    tenant: Guid = Field(description="ID of the Entra tenant")
    region: str = Field(description="region of all resources")
    zones: tuple[Zone, ...] = Field(
        default=(),
        max_length=3,
        description="availability zones of the nodes; default: none, for a region without zones",
    )
    network: AzureNetworkSpec = Field(default=AzureNetworkSpec(), description="VNet of the cluster")
    access: AzureAccessSpec = Field(description="who can access the cluster")
    storage_account: StorageAccountName = Field(
        description="name of the object store's storage account; `storage.object_store.bucket` is its"
        " container"
    )
    storage_group: ResourceGroupName | None = Field(
        default=None,
        description="resource group of an existing storage account and container; default: the stack creates"
        " both",
    )
    keys: ExistingKeysSpec | None = Field(
        default=None, description="existing encryption keys to use; default: the stack creates them"
    )
    log_workspace: WorkspaceId | None = Field(
        default=None,
        description="existing Log Analytics workspace for audit logs; default: the stack creates one",
    )
    registry: RegistryId | None = Field(
        default=None, description="container registry that the nodes get pull access to"
    )
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    amd: AmdSpec | None = Field(default=None, description="images for pools with AMD GPUs")
    filesystem: Annotated[AzureLustreSpec | NetAppSpec | BlobNfsSpec, Field(discriminator="kind")] = Field(
        description="the shared filesystem for checkpoints and datasets"
    )
    second_filesystem: Annotated[AzureLustreSpec | NetAppSpec, Field(discriminator="kind")] | None = Field(
        default=None, description="another one, only to copy to it or from it: docs/datasets.md"
    )
    upgrades: Literal["none", "patch"] = Field(
        default="none",
        description="automatic node upgrades: none, or patch versions at weekends, which restart jobs",
    )
    deletion_protection: Boolean = Field(
        default=True,
        description="whether cluster and data are protected from deletion; set it to false before `pulumi"
        " destroy`",
    )
    tags: dict[str, str] = Field(default={}, description="tags of all resources, such as owner")

    @property
    def existing_bucket(self) -> bool:
        """Whether account and container exist already, with their owner's rules."""
        return self.storage_group is not None
