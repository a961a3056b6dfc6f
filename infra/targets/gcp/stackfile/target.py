"""The `target` section of a Google Cloud stack: project, region, network, access, filesystem, and existing
resources to use.
"""

from ipaddress import IPv4Address, IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.stackfile.base import Boolean, Cidr, Gibibytes, Spec, matching
from infra.stackfile.images import PinnedImage
from infra.stackfile.storage import USE_THE_BUCKET, FilesystemSpec
from infra.stackfile.target import CloudSpec

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
        r"[0-9]{6,19}",
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
        "name a single user, group or account, not allUsers or a domain",
    ),
]
GroupMail = Annotated[
    str,
    matching(
        "gke_security_group",
        r"gke-security-groups@[^@\s]+",
        "gke-security-groups@ and the domain: GKE accepts no other group",
        "create that group in Google Workspace, and add the teams' groups to it",
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
        "keys and values of at most 63 lower-case letters, digits, '_' and '-' (Google Cloud's labels)",
        "use only these characters",
    ),
]
ResourceName = Annotated[str, Field(pattern=r"^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$")]


class ExistingGcpNetworkSpec(Spec):
    """An existing VPC of the project, with NAT and private services access.

    It is retained when the stack is destroyed.
    """

    network: ResourceName = Field(description="name of the VPC")
    subnetwork: ResourceName = Field(description="name of the nodes' subnet, in the stack's region")
    pods_range: ResourceName = Field(description="name of the subnet's secondary range for pods")
    services_range: ResourceName = Field(description="name of the subnet's secondary range for Services")


class GcpNetworkSpec(Spec):
    """The cluster's VPC. The stack creates one unless `existing` is set; fabrics get separate VPCs."""

    cidr: Cidr = Field(
        default=IPv4Network("10.64.0.0/16"),
        description="CIDR from which all VPCs of the stack get their ranges",
    )
    nat: Boolean = Field(
        default=True,
        description="whether to create a Cloud NAT gateway; without one nodes reach Google Cloud APIs only",
    )
    existing: ExistingGcpNetworkSpec | None = Field(default=None, description="an existing VPC to use")


class GcpAccessSpec(Spec):
    """IAM members with access to the cluster. The API server has no public IP address."""

    admins: tuple[Member, ...] = Field(
        min_length=1, description="IAM members with administrator access to the cluster"
    )
    viewers: tuple[Member, ...] = Field(
        default=(), description="IAM members with read access to the cluster, except Secrets"
    )
    break_glass: tuple[Member, ...] = Field(
        default=(),
        description="IAM members that may take administrator access for an hour, with a logged reason"
        " (Privileged Access Manager)",
    )
    security_group: GroupMail | None = Field(
        default=None,
        description="Google Group that contains the groups of teams (Google Groups for RBAC):"
        " gke-security-groups@DOMAIN",
    )
    dns_endpoint: Boolean = Field(
        default=True,
        description="whether the API server is reachable at its DNS endpoint, with authorization by IAM",
    )


class ExistingManagedLustreSpec(Spec):
    """An existing Managed Lustre instance in the filesystem's zone.

    It is retained when the stack is destroyed.
    """

    instance: ResourceName = Field(description="name of the instance")
    address: IPv4Address = Field(description="address in the mount point ADDRESS@tcp:/NAME")
    name: str = Field(
        pattern=r"^[a-z][a-z0-9]{0,7}$", description="filesystem name in the mount point ADDRESS@tcp:/NAME"
    )


class ExistingFilestoreSpec(Spec):
    """An existing Filestore share.

    It is retained when the stack is destroyed.
    """

    address: IPv4Address = Field(description="IP address of the instance")
    share: str = Field(pattern=r"^[a-z][a-z0-9_]{0,62}$", description="name of the share")


GkeFeature = Literal["workload-identity", "dataplane-v2", "multi-networking", "gcs-fuse", "lustre"]
"""Feature that GKE has only from a cluster's creation on, or through an add-on."""


class ExistingGkeSpec(Spec):
    """An existing regional GKE cluster in the stack's project and region. The stack does not change it.

    Set its VPC in `network.existing`. Its owner manages add-ons, upgrades and access.
    """

    name: ResourceName = Field(description="name of the cluster")
    endpoint: str = Field(
        pattern=r"^https://[A-Za-z0-9.-]+$",
        description="URL of the API server: its DNS endpoint, or a private IP address with"
        " `certificate_authority`",
    )
    certificate_authority: str | None = Field(
        default=None,
        pattern=r"^[A-Za-z0-9+/]+={0,2}$",
        description="`masterAuth.clusterCaCertificate`, in base64; not needed for a DNS endpoint",
    )
    version: str = Field(
        pattern=r"^1\.[0-9]{2}$", description="minor version of Kubernetes, as a quoted string"
    )
    features: tuple[GkeFeature, ...] = Field(description="features that are enabled in the cluster")


class ManagedLustreSpec(FilesystemSpec):
    """Managed Lustre: a parallel filesystem in one zone."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = f"Managed Lustre has none; {USE_THE_BUCKET}"

    kind: Literal["lustre"]
    capacity_gib: Gibibytes = Field(alias="capacity", description="size of the filesystem")
    throughput: Literal[125, 250, 500, 1000] = Field(
        default=1000, description="throughput in MB/s per TiB of capacity"
    )
    zone: str | None = Field(
        default=None,
        description="zone of the filesystem; default: that of the pools with a fabric, else the first",
    )
    existing: ExistingManagedLustreSpec | None = Field(
        default=None, description="an existing instance to use"
    )


class FilestoreSpec(FilesystemSpec):
    """Filestore: an NFS share, for development and small clusters."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = (
        "Filestore has no backup schedule: let Cloud Scheduler"
        " call `gcloud filestore backups create`, in a region where the data may be"
    )

    kind: Literal["filestore"]
    capacity_gib: Gibibytes = Field(alias="capacity", description="size of the share")
    tier: Literal["zonal", "regional"] = Field(
        default="zonal", description="service tier: replicated in one zone, or across three"
    )
    zone: str | None = Field(
        default=None, description="zone of the zonal tier; default: the stack's first zone"
    )
    existing: ExistingFilestoreSpec | None = Field(default=None, description="an existing share to use")


class GcpSpec(CloudSpec):
    """GKE with private nodes.

    A preview makes no API calls, so project, its number and zones are declared here.
    """

    DEFAULTED: ClassVar = frozenset({"zones"})
    USUAL_BUCKET: ClassVar[str] = "{project}-{name}-checkpoints"
    LEAST_DELETED_DAYS: ClassVar[int] = 7
    USUAL_SYSTEM: ClassVar = {"machine": "e2-standard-8", "nodes": 3}
    AS_MANY_IN_EACH_ZONE: ClassVar[bool] = True
    ZONE: ClassVar[str] = "{region}-{letter}"
    ZONAL_FILESYSTEMS: ClassVar = frozenset({"lustre"})

    kind: Literal["gcp"]
    project: ProjectId = Field(description="ID of the project of all resources")
    project_number: ProjectNumber = Field(
        description="number of the project, as in the names of Google Cloud's service agents"
    )
    region: str = Field(description="region of all resources")
    zones: tuple[str, ...] = Field(
        min_length=1, max_length=4, description="zones of the nodes; default: the region's first three"
    )
    network: GcpNetworkSpec = Field(default=GcpNetworkSpec(), description="VPC of the cluster")
    access: GcpAccessSpec = Field(description="who can access the cluster")
    release_channel: Literal["regular", "stable", "extended", "none"] = Field(
        default="regular",
        description="release channel for automatic upgrades; `none` for manual upgrades, which queued"
        " provisioning requires",
    )
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    filesystem: Annotated[ManagedLustreSpec | FilestoreSpec, Field(discriminator="kind")] = Field(
        description="the shared filesystem for checkpoints and datasets"
    )
    second_filesystem: Annotated[ManagedLustreSpec | FilestoreSpec, Field(discriminator="kind")] | None = (
        Field(default=None, description="another one, only to copy to it or from it: docs/datasets.md")
    )
    kms_key: KeyName | None = Field(
        default=None,
        description="encryption key of disks, filesystem and bucket; default: the stack creates one",
    )
    existing_bucket: Boolean = Field(
        default=False, description="whether the object store's bucket exists already"
    )
    existing_cluster: ExistingGkeSpec | None = Field(
        default=None, description="an existing GKE cluster to use"
    )
    deletion_protection: Boolean = Field(
        default=True,
        description="whether cluster and filesystem are protected from deletion; set it to false before"
        " `pulumi destroy`",
    )
    labels: dict[Label, Label] = Field(default={}, description="labels of all resources, such as owner")
