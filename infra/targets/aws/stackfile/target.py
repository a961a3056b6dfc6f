"""The `target` section of an AWS stack: account, region, network, access, filesystem, and existing
resources to use.
"""

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from catalog.purchases.aws import default_snapshot_days
from infra.stackfile.base import Boolean, Cidr, Gibibytes, Spec, matching
from infra.stackfile.images import PinnedImage
from infra.stackfile.storage import FilesystemSpec
from infra.stackfile.target import CloudSpec

AccountId = Annotated[
    str,
    matching(
        "aws_account", r"[0-9]{12}", "the 12 digits of an AWS account", "write the account's number in quotes"
    ),
]
PRINCIPAL = r"arn:aws[a-z-]*:iam::[0-9]{12}:(role|user)/[\w+=,.@/-]+"
"""Pattern of the ARN of an IAM role or user."""
PrincipalArn = Annotated[
    str,
    matching(
        "aws_principal",
        PRINCIPAL,
        "the ARN of an IAM role or user: arn:aws:iam::123456789012:role/platform",
        "write the role itself, not one of its sessions (assumed-role)",
    ),
]
KeyArn = Annotated[
    str,
    matching(
        "aws_key",
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:[0-9]{12}:key/[0-9a-f-]+",
        "the ARN of a single-region KMS key: arn:aws:kms:us-east-2:123456789012:key/1a2b…",
        "write the ARN of the key; an alias or a replica (mrk-…) will not do",
    ),
]
PolicyArn = Annotated[
    str,
    matching(
        "aws_policy",
        r"arn:aws[a-z-]*:iam::([0-9]{12}|aws):policy/[\w+=,.@/-]+",
        "the ARN of a managed policy: arn:aws:iam::123456789012:policy/boundary",
        "write the policy's ARN, as `aws iam list-policies` prints it",
    ),
]
_TAG_CHARACTERS = r"[\w .:/=+@-]"
TagKey = Annotated[
    str,
    matching(
        "aws_tag_key",
        rf"(?![aA][wW][sS]:){_TAG_CHARACTERS}{{1,128}}",
        "1 to 128 letters, digits, spaces and _ . : / = + - @, not beginning with 'aws:' in any case",
        "use only these characters",
    ),
]
TagValue = Annotated[
    str,
    matching(
        "aws_tag_value",
        rf"{_TAG_CHARACTERS}{{0,256}}",
        "at most 256 letters, digits, spaces and _ . : / = + - @ (AWS's tags)",
        "use only these characters",
    ),
]
SubnetId = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
FilesystemId = Annotated[str, Field(pattern=r"^fs-[0-9a-f]{8,17}$")]
SecurityGroupId = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]


class ExistingVpcSpec(Spec):
    """An existing VPC with its routes and endpoints.

    It is retained when the stack is destroyed.
    """

    id: str = Field(pattern=r"^vpc-[0-9a-f]{8,17}$", description="ID of the VPC")
    subnets: dict[str, SubnetId] = Field(description="zone to private subnet, for each zone of the stack")


class AwsNetworkSpec(Spec):
    """The cluster's VPC. The stack creates one unless `existing` is set."""

    cidr: Cidr = Field(default=IPv4Network("10.64.0.0/16"), description="CIDR of the VPC")
    nat: Literal["one", "per-zone", "none"] = Field(
        default="one",
        description="NAT gateways; none: nodes reach AWS through VPC endpoints and pull images from `mirror`",
    )
    existing: ExistingVpcSpec | None = Field(default=None, description="an existing VPC to use")


class AwsAccessSpec(Spec):
    """IAM principals with access to the cluster.

    The principal that creates the cluster has none unless it is listed.
    """

    admins: tuple[PrincipalArn, ...] = Field(
        min_length=1,
        description="IAM principals with administrator access to the cluster; must include the one that runs"
        " Pulumi",
    )
    viewers: tuple[PrincipalArn, ...] = Field(
        default=(), description="IAM principals with read access to the cluster"
    )
    break_glass: tuple[PrincipalArn, ...] = Field(
        default=(),
        description="IAM principals that may assume the emergency role, which gives administrator access for"
        " an hour",
    )
    public_cidrs: tuple[Cidr, ...] = Field(
        default=(),
        description="CIDRs that may reach the API server from the public internet; default: none, the"
        " endpoint is private",
    )
    private_cidrs: tuple[Cidr, ...] = Field(
        default=(),
        description="CIDRs of connected private networks, such as the CI runners', that may reach the"
        " private endpoint",
    )


class ExistingLustreSpec(Spec):
    """An existing FSx for Lustre filesystem in the VPC of `network.existing`.

    It is retained when the stack is destroyed.
    """

    id: FilesystemId = Field(description="ID of the filesystem")
    mount_name: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,8}$",
        description="mount name, as `aws fsx describe-file-systems` returns it",
    )
    security_group: SecurityGroupId = Field(
        description="security group of the filesystem; the stack adds rules for the nodes"
    )


class ExistingEfsSpec(Spec):
    """An existing EFS filesystem with a mount target in each zone of the stack.

    It is retained when the stack is destroyed.
    """

    id: FilesystemId = Field(description="ID of the filesystem")
    security_group: SecurityGroupId = Field(
        description="security group of the mount targets; the stack adds rules for the nodes"
    )


class ExistingEksSpec(Spec):
    """An existing EKS cluster, as `aws eks describe-cluster` returns it. The stack does not change it.

    Set its VPC in `network.existing`. Its owner manages add-ons, logs and access.
    """

    name: str = Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$", description="name of the cluster")
    endpoint: str = Field(pattern=r"^https://[A-Za-z0-9.-]+$", description="URL of the API server")
    certificate_authority: str = Field(
        pattern=r"^[A-Za-z0-9+/]+={0,2}$", description="`certificateAuthority.data`, in base64"
    )
    security_group: SecurityGroupId = Field(
        description="`clusterSecurityGroupId`, the security group of the nodes"
    )
    version: str = Field(
        pattern=r"^1\.[0-9]{2}$", description="minor version of Kubernetes, as a quoted string"
    )
    authentication_mode: Literal["API", "API_AND_CONFIG_MAP", "CONFIG_MAP"] = Field(
        description="authentication mode of the cluster (`accessConfig.authenticationMode`)"
    )
    addons: tuple[str, ...] = Field(description="installed add-ons, as `aws eks list-addons` returns them")


class LustreSpec(FilesystemSpec):
    """FSx for Lustre (PERSISTENT_2): a parallel filesystem in one zone."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = ""

    kind: Literal["lustre"]
    capacity_gib: Gibibytes = Field(alias="capacity", description="size of the filesystem")
    throughput: Literal[125, 250, 500, 1000] = Field(
        default=250, description="throughput in MB/s per TiB of capacity"
    )
    efa: Boolean = Field(
        default=False, description="whether clients with EFA connect over EFA; others use TCP"
    )
    zone: str | None = Field(
        default=None,
        description="zone of the filesystem; default: that of the pools with EFA, else the first",
    )
    link: Boolean = Field(
        default=True,
        description="whether the filesystem is synchronized with `filesystem/` of the bucket (data"
        " repository association)",
    )
    existing: ExistingLustreSpec | None = Field(default=None, description="an existing filesystem to use")

    @property
    def is_linked(self) -> bool:
        """Whether the stack links it to the bucket; one that exists already is its owner's to link."""
        return self.link and self.existing is None

    @property
    def default_snapshot_days(self) -> int:
        """A week of FSx's backups, where the files are nowhere else."""
        return default_snapshot_days(linked=self.link or self.existing is not None)


class EfsSpec(FilesystemSpec):
    """Elastic File System: elastic capacity in all zones, for development and small clusters."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = ""

    kind: Literal["efs"]
    existing: ExistingEfsSpec | None = Field(default=None, description="an existing filesystem to use")


class AwsSpec(CloudSpec):
    """EKS with managed node groups.

    A preview makes no API calls, so account and zones are declared here.
    """

    DEFAULTED: ClassVar = frozenset({"zones", "filesystem"})
    USUAL_BUCKET: ClassVar[str] = "{account}-{name}-checkpoints"
    USUAL_FILESYSTEM: ClassVar[str] = "efs"
    LEAST_DELETED_DAYS: ClassVar[int] = 1
    USUAL_SYSTEM: ClassVar = {"machine": "m7i.2xlarge", "nodes": 3}
    ZONE: ClassVar[str] = "{region}{letter}"
    ZONAL_FILESYSTEMS: ClassVar = frozenset({"lustre"})

    kind: Literal["aws"]
    account: AccountId = Field(description="AWS account ID; credentials of another account are refused")
    region: str = Field(description="region of all resources")
    zones: tuple[str, ...] = Field(
        min_length=2,
        max_length=6,
        description="availability zones, at least two; do not reorder them later; default: the region's first"
        " three",
    )
    network: AwsNetworkSpec = Field(default=AwsNetworkSpec(), description="VPC of the cluster")
    access: AwsAccessSpec = Field(description="who can access the cluster")
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    filesystem: Annotated[LustreSpec | EfsSpec, Field(discriminator="kind")] = Field(
        description="the shared filesystem for checkpoints and datasets; default: EFS"
    )
    second_filesystem: Annotated[LustreSpec | EfsSpec, Field(discriminator="kind")] | None = Field(
        default=None, description="another one, only to copy to it or from it: docs/datasets.md"
    )
    kms_key: KeyArn | None = Field(
        default=None,
        description="encryption key of disks, filesystem and bucket; default: the stack creates one",
    )
    existing_bucket: Boolean = Field(
        default=False, description="whether the object store's bucket exists already"
    )
    existing_cluster: ExistingEksSpec | None = Field(
        default=None, description="an existing EKS cluster to use"
    )
    interruption_queue: Boolean = Field(
        default=False,
        description="whether to create an SQS queue of EC2 interruption events for self-managed nodes"
        " (Karpenter, Node Termination Handler)",
    )
    permissions_boundary: PolicyArn | None = Field(
        default=None,
        description="permissions boundary (managed policy) of every IAM role that the stack creates",
    )
    deletion_protection: Boolean = Field(
        default=True,
        description="whether cluster and filesystem are protected from deletion; set it to false before"
        " `pulumi destroy`",
    )
    tags: dict[TagKey, TagValue] = Field(default={}, description="tags of all resources, such as owner")
