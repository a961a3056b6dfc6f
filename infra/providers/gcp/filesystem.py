"""The shared filesystem under checkpoints: Managed Lustre, or Filestore."""

from __future__ import annotations

from typing import Any

from pulumi_gcp.filestore._inputs import InstanceFileSharesArgs, InstanceNetworkArgs
from pulumi_gcp.filestore.instance import Instance as Filestore
from pulumi_gcp.lustre.instance import Instance as Lustre

from infra import names
from infra.providers.base import VolumeSource
from infra.providers.gcp.keys import Keys
from infra.providers.gcp.network import Network
from infra.providers.gcp.scope import Scope
from infra.spec.gcp import FilestoreSpec, ManagedLustreSpec

LUSTRE_NAME = "training"
"""Name of the filesystem inside of Lustre, which takes eight characters."""
SHARE = "training"
_MAX_INSTANCE_ID = 63


def make_filesystem(scope: Scope, network: Network, keys: Keys) -> VolumeSource:
    """Make the filesystem of the stack; return how its folders become volumes."""
    spec = scope.spec.filesystem
    if isinstance(spec, ManagedLustreSpec):
        return lustre_volumes(scope, spec, _lustre(scope, spec, network, keys))
    return filestore_volumes(_filestore(scope, spec, network, keys))


def _lustre(scope: Scope, spec: ManagedLustreSpec, network: Network, keys: Keys) -> Lustre:
    return Lustre(
        scope.named("lustre"),
        instance_id=_lustre_id(scope),
        location=_zone(scope, spec.zone),
        filesystem=LUSTRE_NAME,
        capacity_gib=str(spec.capacity_gib),
        per_unit_storage_throughput=str(spec.throughput),
        network=network.id,
        kms_key=keys.data,
        labels=scope.labels,
        project=scope.project,
        opts=scope.options(
            depends_on=[network.peering] if network.peering else [], protect=scope.spec.deletion_protection
        ),
    )


def _lustre_id(scope: Scope) -> str:
    return names.fit(scope.named("lustre"), _MAX_INSTANCE_ID)


def _zone(scope: Scope, zone: str | None) -> str:
    return zone or scope.spec.zones[0]


def lustre_volumes(scope: Scope, spec: ManagedLustreSpec, filesystem: Lustre) -> VolumeSource:
    """Volumes of a Lustre filesystem: a folder is mounted by itself, so that no pod sees another team's.

    The driver mounts `<address>@tcp:/<filesystem>`, and Lustre takes a folder at the end of that.
    """
    # `10.0.0.2@tcp:/name` → the address
    address = filesystem.mount_point.apply(lambda point: point.partition("@")[0])
    handle = f"{scope.project}/{_zone(scope, spec.zone)}/{_lustre_id(scope)}"

    def source(path: str) -> dict[str, Any]:
        below = f"/{path}" if path else ""
        attributes = {"ip": address, "filesystem": f"{LUSTRE_NAME}{below}"}
        volume = f"{handle}{below.replace('/', '-')}"
        csi = {
            "driver": "lustre.csi.storage.gke.io",
            "volumeHandle": volume,
            "volumeAttributes": attributes,
        }
        return {"csi": csi, "mountOptions": ["flock"]}

    return source


def _filestore(scope: Scope, spec: FilestoreSpec, network: Network, keys: Keys) -> Filestore:
    return Filestore(
        scope.named("filestore"),
        tier=spec.tier.upper(),
        location=scope.region if spec.tier == "regional" else _zone(scope, spec.zone),
        file_shares=InstanceFileSharesArgs(name=SHARE, capacity_gb=spec.capacity_gib),
        networks=[
            InstanceNetworkArgs(
                network=network.id,
                modes=["MODE_IPV4"],
                connect_mode="PRIVATE_SERVICE_ACCESS",
                reserved_ip_range=network.filesystem_range,
            )
        ],
        kms_key_name=keys.data,
        deletion_protection_enabled=scope.spec.deletion_protection,
        labels=scope.labels,
        project=scope.project,
        opts=scope.options(
            depends_on=[network.peering] if network.peering else [], protect=scope.spec.deletion_protection
        ),
    )


def filestore_volumes(filesystem: Filestore) -> VolumeSource:
    """Volumes of a Filestore share, mounted by the nodes' own NFS client."""
    address = filesystem.networks.apply(lambda networks: str(networks[0].ip_addresses[0]))

    def source(path: str) -> dict[str, Any]:
        folder = f"/{SHARE}/{path}" if path else f"/{SHARE}"
        return {"nfs": {"server": address, "path": folder}, "mountOptions": ["hard", "nconnect=8"]}

    return source
