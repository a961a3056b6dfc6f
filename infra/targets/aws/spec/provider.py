"""The AWS target: an EKS cluster in one region and account."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from catalog.purchases.aws import default_snapshot_days
from infra.spec.base import Boolean, Cidr, Positive, Spec, matching
from infra.spec.images import PinnedImage
from infra.spec.machine import WithMachines
from infra.spec.provider import ManagedProviderSpec
from infra.spec.storage import FilesystemSpec

AccountId = Annotated[
    str,
    matching(
        "aws_account",
        r"\d{12}",
        "the 12 digits of an AWS account",
        "write the account's number in quotes",
    ),
]
PrincipalArn = Annotated[
    str,
    matching(
        "aws_principal",
        r"arn:aws[a-z-]*:iam::\d{12}:(role|user)/[\w+=,.@/-]+",
        "the ARN of an IAM role or user: arn:aws:iam::123456789012:role/platform",
        "write the role itself, not one of its sessions (assumed-role)",
    ),
]
KeyArn = Annotated[
    str,
    matching(
        "aws_key",
        r"arn:aws[a-z-]*:kms:[a-z0-9-]+:\d{12}:key/[0-9a-f-]+",
        "the ARN of a single-region KMS key: arn:aws:kms:us-east-2:123456789012:key/1a2b…",
        "write the ARN of the key; an alias or a replica (mrk-…) will not do",
    ),
]
PolicyArn = Annotated[
    str,
    matching(
        "aws_policy",
        r"arn:aws[a-z-]*:iam::(\d{12}|aws):policy/[\w+=,.@/-]+",
        "the ARN of a managed policy: arn:aws:iam::123456789012:policy/boundary",
        "write the policy's ARN, as `aws iam list-policies` says it",
    ),
]
_TAG_CHARACTERS = r"[\w .:/=+@-]"
TagKey = Annotated[
    str,
    matching(
        "aws_tag_key",
        rf"(?!aws:){_TAG_CHARACTERS}{{1,128}}",
        "1 to 128 letters, digits, spaces and _ . : / = + - @, not beginning with 'aws:' (AWS's tags)",
        "spell it with these",
    ),
]
TagValue = Annotated[
    str,
    matching(
        "aws_tag_value",
        rf"{_TAG_CHARACTERS}{{0,256}}",
        "at most 256 letters, digits, spaces and _ . : / = + - @ (AWS's tags)",
        "spell it with these",
    ),
]
SubnetId = Annotated[str, Field(pattern=r"^subnet-[0-9a-f]{8,17}$")]
FilesystemId = Annotated[str, Field(pattern=r"^fs-[0-9a-f]{8,17}$")]
SecurityGroupId = Annotated[str, Field(pattern=r"^sg-[0-9a-f]{8,17}$")]


class ExistingVpcSpec(Spec):
    """A VPC that exists already, with its routes and endpoints; it remains when the stack is destroyed."""

    id: str = Field(pattern=r"^vpc-[0-9a-f]{8,17}$", description="ID of the VPC")
    subnets: dict[str, SubnetId] = Field(description="private subnet of each zone of the stack")


class AwsNetworkSpec(Spec):
    """The cluster's VPC, made by the stack unless `existing` names one."""

    cidr: Cidr = Field(default=IPv4Network("10.64.0.0/16"), description="addresses of the VPC")
    nat: Literal["one", "per-zone", "none"] = Field(
        default="one",
        description="NAT gateways; none: nodes reach AWS by endpoints, images by `mirror`",
    )
    existing: ExistingVpcSpec | None = Field(default=None, description="a VPC to use")


class AwsAccessSpec(Spec):
    """Who may use the cluster: nobody else, and not the one who made it either."""

    admins: tuple[PrincipalArn, ...] = Field(
        min_length=1, description="IAM principals with all rights, the engine's user included"
    )
    viewers: tuple[PrincipalArn, ...] = Field(default=(), description="IAM principals that may look")
    break_glass: tuple[PrincipalArn, ...] = Field(
        default=(),
        description="IAM principals that may take the emergency's role, which may do all, for an hour",
    )
    public_cidrs: tuple[Cidr, ...] = Field(
        default=(), description="networks outside that reach the API server; empty: it is private"
    )
    private_cidrs: tuple[Cidr, ...] = Field(
        default=(), description="networks inside, or connected, that reach its private endpoint: runners'"
    )


class ExistingLustreSpec(Spec):
    """A filesystem of FSx that exists already, in the VPC that exists already; it remains."""

    id: FilesystemId = Field(description="ID of the filesystem")
    mount_name: str = Field(
        pattern=r"^[A-Za-z0-9_-]{1,8}$", description="its mount name, as `aws fsx describe-file-systems` says"
    )
    security_group: SecurityGroupId = Field(description="its security group, which lets the nodes in")


class ExistingEfsSpec(Spec):
    """An EFS filesystem that exists already, with a mount target in each zone of the stack; it remains."""

    id: FilesystemId = Field(description="ID of the filesystem")
    security_group: SecurityGroupId = Field(description="that of its mount targets, which lets the nodes in")


class ExistingEksSpec(Spec):
    """An EKS cluster that exists already, as `aws eks describe-cluster` returns it; it remains unchanged.

    Its network is `network.existing`; its add-ons, its logs and who may use it are its owner's.
    """

    name: str = Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$", description="name of the cluster")
    endpoint: str = Field(pattern=r"^https://[A-Za-z0-9.-]+$", description="URL of its API server")
    certificate_authority: str = Field(
        pattern=r"^[A-Za-z0-9+/]+={0,2}$", description="`certificateAuthority.data`, in base64"
    )
    security_group: SecurityGroupId = Field(description="`clusterSecurityGroupId`, which its nodes have")
    version: str = Field(pattern=r"^1\.\d{2}$", description="minor version of Kubernetes, in quotes")
    authentication_mode: Literal["API", "API_AND_CONFIG_MAP", "CONFIG_MAP"] = Field(
        description="by what it lets people in"
    )
    addons: tuple[str, ...] = Field(description="add-ons that it has, as `aws eks list-addons` names them")


class LustreSpec(FilesystemSpec):
    """FSx for Lustre (PERSISTENT_2), all nodes read and write it at the speed of the fabric."""

    NO_SNAPSHOTS: ClassVar[str] = ""

    kind: Literal["lustre"]
    capacity_gib: Positive = Field(description="size of the filesystem, in GiB")
    throughput: Literal[125, 250, 500, 1000] = Field(default=250, description="MB/s per TiB")
    efa: Boolean = Field(default=False, description="clients with EFA reach it by EFA")
    zone: str | None = Field(default=None, description="zone; default: the stack's first one")
    link: Boolean = Field(default=True, description="keep the bucket's `filesystem/` and it the same")
    existing: ExistingLustreSpec | None = Field(default=None, description="a filesystem to use")

    @property
    def is_linked(self) -> bool:
        """Whether the stack links it to the bucket; one that exists already is its owner's to link."""
        return self.link and self.existing is None

    @property
    def default_snapshot_days(self) -> int:
        """A week of FSx's backups, where the files are nowhere else."""
        return default_snapshot_days(linked=self.link or self.existing is not None)


class EfsSpec(FilesystemSpec):
    """Elastic File System: grows by itself, in all zones, for development and small clusters."""

    NO_SNAPSHOTS: ClassVar[str] = ""

    kind: Literal["efs"]
    existing: ExistingEfsSpec | None = Field(default=None, description="a filesystem to use")


class AwsSpec(WithMachines, ManagedProviderSpec):
    """EKS with managed node groups. A plan looks nothing up, so account and zones are declared here."""

    kind: Literal["aws"]
    account: AccountId = Field(description="AWS account; credentials of another one are refused")
    region: str = Field(description="region of every resource")
    zones: tuple[str, ...] = Field(
        min_length=2, max_length=6, description="availability zones, in a fixed order; EKS needs two"
    )
    network: AwsNetworkSpec = Field(default=AwsNetworkSpec(), description="the VPC")
    access: AwsAccessSpec = Field(description="who may use the cluster")
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    filesystem: Annotated[LustreSpec | EfsSpec, Field(discriminator="kind")] = Field(
        description="the shared filesystem, under checkpoints"
    )
    kms_key: KeyArn | None = Field(
        default=None, description="key for disks, filesystem and bucket; default: one is created"
    )
    existing_bucket: Boolean = Field(default=False, description="the object store's bucket is there already")
    existing_cluster: ExistingEksSpec | None = Field(default=None, description="a cluster to use")
    interruption_queue: Boolean = Field(
        default=False,
        description="queue of EC2's notices for self-managed nodes (Karpenter, Node Termination Handler)",
    )
    permissions_boundary: PolicyArn | None = Field(
        default=None, description="managed policy that bounds the rights of every role that the stack makes"
    )
    deletion_protection: Boolean = Field(
        default=True, description="refuse to delete cluster and filesystem; put it off before a destroy"
    )
    tags: dict[TagKey, TagValue] = Field(default={}, description="tags of every resource, such as owner")
