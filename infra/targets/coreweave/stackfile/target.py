"""The `target` section of a CoreWeave stack: zone, network, OIDC sign-in, training image, and the bucket's
access policy.
"""

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.stackfile.base import Boolean, Cidr, Name, Spec, matching
from infra.stackfile.images import PinnedImage
from infra.stackfile.storage import USE_THE_BUCKET
from infra.stackfile.target import CloudSpec

MAX_NAME = 30
"""Maximum length of a CKS cluster's name."""


class CoreweaveNetworkSpec(Spec):
    """Address ranges of the VPC. CoreWeave assigns those of the nodes."""

    pods: Cidr = Field(default=IPv4Network("10.0.0.0/13"), description="CIDR of pods")
    services: Cidr = Field(default=IPv4Network("10.16.0.0/22"), description="CIDR of Services")
    load_balancers: Cidr = Field(
        default=IPv4Network("10.32.4.0/22"), description="CIDR of internal load balancers"
    )


class OidcSpec(Spec):
    """An OIDC identity provider for users, besides CoreWeave's tokens."""

    issuer_url: Annotated[str, Field(pattern=r"^https://\S+$")] = Field(description="issuer URL")
    client_id: str = Field(min_length=1, description="client ID: the audience of the tokens")
    groups_claim: str = Field(default="groups", min_length=1, description="claim with the user's groups")
    admin_group: str | None = Field(
        default=None, min_length=1, description="group with administrator access to the cluster"
    )


Principal = Annotated[
    str,
    matching(
        "principal",
        r"arn:aws:iam::[0-9a-z]+:(coreweave|role)/\S+",
        "a user or role of CoreWeave, as arn:aws:iam::<organisation>:coreweave/<UID>",
        "copy the UID from the Cloud Console; SAML and OIDC roles are arn:aws:iam::<organisation>:role/…",
    ),
]
"""Principal of a bucket policy (AI Object Storage, bucket access policies: Principal)."""


class BucketPolicySpec(Spec):
    """Principals that may access the bucket; a team's principal may access only `checkpoints/<team>/`."""

    administrators: tuple[Principal, ...] = Field(
        min_length=1, description="principals with full access to the bucket, among them the user of `up`"
    )
    teams: dict[Name, Principal] = Field(description="team to the principal of its keys")


class CoreweaveSpec(CloudSpec):
    """CKS with bare-metal nodes. CoreWeave manages the drivers of GPUs and InfiniBand."""

    WHY_NO_SNAPSHOTS: ClassVar[str] = f"shared-vast has no snapshot schedules; {USE_THE_BUCKET}"

    USUAL_BUCKET: ClassVar[str] = "{name}-checkpoints"
    LEAST_DELETED_DAYS: ClassVar[int] = 1
    USUAL_SYSTEM: ClassVar = {"machine": "turin-gp", "nodes": 2}

    kind: Literal["coreweave"]
    zone: str = Field(description="availability zone of all resources")
    network: CoreweaveNetworkSpec = Field(default=CoreweaveNetworkSpec(), description="VPC of the cluster")
    public_endpoint: Boolean = Field(
        default=False,
        description="whether the API server is reachable from the public internet; false: from the VPC only",
    )
    oidc: OidcSpec | None = Field(default=None, description="OIDC identity provider of users")
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    object_store_secret: Name = Field(
        default="object-store",
        description="existing Secret with the access keys, in each team's namespace; the stack never reads"
        " the keys",
    )
    bucket_policy: BucketPolicySpec | None = Field(
        default=None,
        description="bucket access policy with a folder per team; default: none, and the organisation access"
        " policy alone decides",
    )
    existing_bucket: Boolean = Field(
        default=False, description="whether the object store's bucket exists already"
    )
    deletion_protection: Boolean = Field(
        default=True,
        description="whether the cluster is protected from deletion; set it to false before `pulumi destroy`",
    )
