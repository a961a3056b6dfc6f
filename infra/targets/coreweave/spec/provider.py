"""The CoreWeave target: a CKS cluster in one zone."""

from __future__ import annotations

from ipaddress import IPv4Network
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from infra.spec.base import Boolean, Cidr, Name, Spec
from infra.spec.images import PinnedImage
from infra.spec.machine import WithMachines
from infra.spec.provider import ManagedProviderSpec
from infra.spec.storage import USE_THE_BUCKET

MAX_NAME = 30
"""Longest name of a CKS cluster."""


class CoreweaveNetworkSpec(Spec):
    """Address ranges of the VPC; CoreWeave gives the machines theirs."""

    pods: Cidr = Field(default=IPv4Network("10.0.0.0/13"), description="addresses of pods")
    services: Cidr = Field(default=IPv4Network("10.16.0.0/22"), description="addresses of Services")
    load_balancers: Cidr = Field(
        default=IPv4Network("10.32.4.0/22"), description="addresses of load balancers inside of the VPC"
    )


class OidcSpec(Spec):
    """Your own identity provider, beside CoreWeave's tokens."""

    issuer_url: Annotated[str, Field(pattern=r"^https://\S+$")] = Field(description="URL of the issuer")
    client_id: str = Field(min_length=1, description="audience of its tokens")
    groups_claim: str = Field(default="groups", min_length=1, description="claim that lists groups")
    admin_group: str | None = Field(default=None, min_length=1, description="group that may do all")


class CoreweaveSpec(WithMachines, ManagedProviderSpec):
    """CKS with bare-metal nodes; drivers of GPUs and InfiniBand are CoreWeave's own."""

    NO_SNAPSHOTS: ClassVar[str] = f"volumes of shared-vast have no schedule; {USE_THE_BUCKET}"

    kind: Literal["coreweave"]
    zone: str = Field(description="availability zone of every resource")
    network: CoreweaveNetworkSpec = Field(default=CoreweaveNetworkSpec(), description="the VPC")
    public_endpoint: Boolean = Field(
        default=False, description="reach the API server from the internet; false: from the VPC alone"
    )
    oidc: OidcSpec | None = Field(default=None, description="identity provider of people")
    training_image: PinnedImage = Field(description="image that jobs run in, by digest, in a registry")
    object_store_secret: Name = Field(
        default="object-store",
        description="Secret in each team's namespace, put there by others: no key goes through this stack",
    )
    existing_bucket: Boolean = Field(default=False, description="the object store's bucket is there already")
    deletion_protection: Boolean = Field(
        default=True, description="refuse to delete the cluster; put it off before a destroy"
    )
