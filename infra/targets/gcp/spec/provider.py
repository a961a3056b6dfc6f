"""The Google Cloud target: a GKE cluster in one region and project."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.spec.base import Boolean, Cidr, Positive, Spec, matching
from infra.spec.images import PinnedImage
from infra.spec.machine import WithMachines
from infra.spec.provider import ManagedProviderSpec
from infra.spec.storage import USE_THE_BUCKET, FilesystemSpec

ProjectId = Annotated[
    str,
    matching(
        "gcp_project",
        r"[a-z][a-z0-9-]{4,28}[a-z0-9]",
        "a project ID: 6 to 30 lower-case letters, digits and '-'",
        "write the ID that `gcloud projects list` shows, not the name",
    ),
]
ProjectNumber = Annotated[
    str,
    matching(
        "gcp_project_number",
        r"\d{6,19}",
        "the project's number, in digits",
        "see `gcloud projects describe PROJECT`; write it in quotes",
    ),
]
Member = Annotated[
    str,
    matching(
        "gcp_member",
        r"(user|group|serviceAccount):[^@\s]+@[^@\s]+|principal(Set)?://\S+",
        "one named IAM member: group:platform@example.com, user:…, serviceAccount:…, principalSet://…",
        "name who it is; allUsers and whole domains are nobody in particular",
    ),
]
GroupMail = Annotated[
    str,
    matching(
        "gke_security_group",
        r"gke-security-groups@[^@\s]+",
        "gke-security-groups@ and the domain: GKE takes no other group",
        "make that group in Google Workspace, and put the teams' groups into it",
    ),
]
KeyName = Annotated[
    str,
    matching(
        "gcp_key",
        r"projects/[^/]+/locations/[^/]+/keyRings/[^/]+/cryptoKeys/[^/]+",
        "a key's full name: projects/P/locations/REGION/keyRings/RING/cryptoKeys/KEY",
        "write the name of the key, not of one of its versions",
    ),
]
Label = Annotated[
    str,
    matching(
        "gcp_label",
        r"[a-z0-9_-]{1,63}",
        "keys and values of lower-case letters, digits, '_' and '-', 63 at most (Google's labels)",
        "spell it so",
    ),
]
ResourceName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]


class ExistingGcpNetworkSpec(Spec):
    """A VPC of the project that exists already, with NAT and private services access; it remains."""

    network: ResourceName = Field(description="name of the VPC")
    subnetwork: ResourceName = Field(description="subnet of the nodes, in the stack's region")
    pods_range: ResourceName = Field(description="secondary range of the subnet for pods")
    services_range: ResourceName = Field(description="secondary range of the subnet for Services")


class GcpNetworkSpec(Spec):
    """The cluster's VPC, made by the stack unless `existing` names one; fabrics have VPCs of their own."""

    cidr: Cidr = Field(default=IPv4Network("10.64.0.0/16"), description="addresses of all VPCs of the stack")
    nat: Boolean = Field(default=True, description="Cloud NAT; false: nodes reach Google's services only")
    existing: ExistingGcpNetworkSpec | None = Field(default=None, description="a VPC to use")


class GcpAccessSpec(Spec):
    """Who may use the cluster. Nobody reaches it by an IP address from outside of the VPC."""

    admins: tuple[Member, ...] = Field(min_length=1, description="IAM members that may do all")
    viewers: tuple[Member, ...] = Field(default=(), description="IAM members that may look, secrets apart")
    break_glass: tuple[Member, ...] = Field(
        default=(),
        description="IAM members that may give themselves all rights for an hour, with a reason that is kept",
    )
    security_group: GroupMail | None = Field(
        default=None, description="Google Group of the groups that teams name: gke-security-groups@DOMAIN"
    )
    dns_endpoint: Boolean = Field(
        default=True, description="reach the API server by its DNS name, from where IAM lets in"
    )


class ExistingManagedLustreSpec(Spec):
    """An instance of Managed Lustre that exists already, in the filesystem's zone; it remains."""

    instance: ResourceName = Field(description="name of the instance")
    address: IPv4Address = Field(description="address in its mount point: ADDRESS@tcp:/NAME")
    name: str = Field(pattern=r"^[a-z][a-z0-9]{0,7}$", description="name at the end of its mount point")


class ExistingFilestoreSpec(Spec):
    """A Filestore share that exists already; it remains."""

    address: IPv4Address = Field(description="address of the instance")
    share: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="name of the share")


GkeFeature = Literal["workload-identity", "dataplane-v2", "multi-networking", "gcs-fuse", "lustre"]
"""What GKE has or has not from its cluster's making on, or by its add-ons."""


class ExistingGkeSpec(Spec):
    """A regional GKE cluster that exists already, in the project and region; it remains unchanged.

    Its network is `network.existing`; its add-ons, its upgrades and who may use it are its owner's.
    """

    name: ResourceName = Field(description="name of the cluster")
    endpoint: str = Field(
        pattern=r"^https://[A-Za-z0-9.-]+$",
        description="URL of its API server: DNS name, or private address and `certificate_authority`",
    )
    certificate_authority: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9+/]+={0,2}$",
        description="`masterAuth.clusterCaCertificate`, in base64; default: the endpoint is its DNS name",
    )
    version: str = Field(pattern=r"^1\.\d{2}$", description="minor version of Kubernetes, in quotes")
    features: tuple[GkeFeature, ...] = Field(description="what it has, of what a stack can need")


class ManagedLustreSpec(FilesystemSpec):
    """Managed Lustre: in one zone, all nodes read and write it in parallel."""

    NO_SNAPSHOTS: ClassVar[str] = f"Managed Lustre has none; {USE_THE_BUCKET}"

    kind: Literal["lustre"]
    capacity_gib: Positive = Field(description="size of the filesystem, in GiB")
    throughput: Literal[125, 250, 500, 1000] = Field(default=1000, description="MB/s per TiB")
    zone: str | None = Field(default=None, description="zone; default: the stack's first one")
    existing: ExistingManagedLustreSpec | None = Field(default=None, description="an instance to use")


class FilestoreSpec(FilesystemSpec):
    """Filestore: NFS, for development and small clusters."""

    NO_SNAPSHOTS: ClassVar[str] = (
        "Filestore takes a backup on request, and has no schedule of its own: have Cloud Scheduler"
        " call `gcloud filestore backups create`, in a region where the data may be"
    )

    kind: Literal["filestore"]
    capacity_gib: Positive = Field(description="size of the share, in GiB")
    tier: Literal["zonal", "regional"] = Field(default="zonal", description="kept in one zone, or in three")
    zone: str | None = Field(default=None, description="zone of the zonal tier; default: the first one")
    existing: ExistingFilestoreSpec | None = Field(default=None, description="a share to use")


class GcpSpec(WithMachines, ManagedProviderSpec):
    """GKE with private nodes. A plan looks nothing up, so project, its number and zones are declared here."""

    kind: Literal["gcp"]
    project: ProjectId = Field(description="project of every resource")
    project_number: ProjectNumber = Field(
        description="number of the project, by which Google names its own identities"
    )
    region: str = Field(description="region of every resource")
    zones: tuple[str, ...] = Field(min_length=1, max_length=4, description="zones of the nodes")
    network: GcpNetworkSpec = Field(default=GcpNetworkSpec(), description="the VPC")
    access: GcpAccessSpec = Field(description="who may use the cluster")
    release_channel: Literal["regular", "stable", "extended", "none"] = Field(
        default="regular", description="who decides on upgrades; queued provisioning needs none"
    )
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    filesystem: Annotated[ManagedLustreSpec | FilestoreSpec, Field(discriminator="kind")] = Field(
        description="the shared filesystem, under checkpoints"
    )
    kms_key: KeyName | None = Field(
        default=None, description="key for disks, filesystem and bucket; default: one is created"
    )
    existing_bucket: Boolean = Field(default=False, description="the object store's bucket is there already")
    existing_cluster: ExistingGkeSpec | None = Field(default=None, description="a cluster to use")
    deletion_protection: Boolean = Field(
        default=True, description="refuse to delete cluster and filesystem; put it off before a destroy"
    )
    labels: dict[Label, Label] = Field(default={}, description="labels of every resource, such as owner")
