"""KMS keys, and the service agents' permission to use them: one key for the control plane's secrets, and one
for data (disks, filesystem, bucket) unless the stack names an existing one.

A key ring can never be deleted, and data outlives the cluster, so ring and keys are retained when the stack
is destroyed.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import pulumi
from pulumi_gcp.kms.crypto_key import CryptoKey
from pulumi_gcp.kms.crypto_key_iam_member import CryptoKeyIAMMember
from pulumi_gcp.kms.key_ring import KeyRing

from infra.targets.gcp.cluster.scope import Scope

ROTATION_SECONDS = 90 * 24 * 3600
"""Rotation period of a key: 90 days, as auditors require (CIS Google Cloud 1.10)."""
_USE = "roles/cloudkms.cryptoKeyEncrypterDecrypter"


@dataclass(frozen=True)
class Keys:
    """Names of the keys, known once their users have their rights."""

    cluster: pulumi.Input[str]
    """Name of the control plane's key; empty where the control plane exists already."""
    data: pulumi.Input[str]


def make_keys(scope: Scope) -> Keys:
    """Make the keys; for data the stack can name one, such as that of a stack that was before.

    A key that is named must let the same services use it (docs/gcp.md): it is not ours to change.
    """
    makes_cluster = scope.spec.existing_cluster is None
    if scope.spec.kms_key and not makes_cluster:
        return Keys("", scope.spec.kms_key)
    ring = KeyRing(
        scope.named("keys"),
        location=scope.region,
        project=scope.project,
        opts=scope.options(retain_on_delete=True),
    )
    cluster = _key(scope, ring, "cluster", ["container"]) if makes_cluster else ""
    if scope.spec.kms_key:
        return Keys(cluster, scope.spec.kms_key)
    filesystem = scope.spec.filesystem
    makers = [] if filesystem.existing else [filesystem.kind]
    return Keys(cluster, _key(scope, ring, "data", ["compute", "storage", *makers]))


def _key(scope: Scope, ring: KeyRing, role: str, services: Sequence[str]) -> pulumi.Output[str]:
    key = CryptoKey(
        scope.named(f"{role}-key"),
        key_ring=ring.id,
        purpose="ENCRYPT_DECRYPT",
        rotation_period=f"{ROTATION_SECONDS}s",
        labels=scope.labels,
        opts=scope.options(protect=role == "data" and scope.spec.deletion_protection, retain_on_delete=True),
    )
    allowed = [
        CryptoKeyIAMMember(
            scope.named(f"{role}-key-{service}"),
            crypto_key_id=key.id,
            role=_USE,
            member=scope.service_agent(service),
            # The bucket is retained, and its data can be read only with the key.
            opts=scope.options(retain_on_delete=role == "data"),
        )
        for service in services
    ]
    return pulumi.Output.all(key.id, *(member.id for member in allowed)).apply(lambda known: str(known[0]))
