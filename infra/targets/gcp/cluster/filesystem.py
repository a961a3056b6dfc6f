"""Creates the shared filesystem on Google Cloud (Managed Lustre or Filestore) or uses an existing one, and
describes the volumes by which pods mount its folders.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, cast

import pulumi
from pulumi.output import UNKNOWN
from pulumi_gcp.filestore._inputs import InstanceFileSharesArgs, InstanceNetworkArgs
from pulumi_gcp.filestore.instance import Instance as Filestore
from pulumi_gcp.filestore.outputs import InstanceNetwork
from pulumi_gcp.lustre.instance import Instance as Lustre

from infra.common import names
from infra.targets.base import VolumeSource
from infra.targets.gcp.cluster.keys import Keys
from infra.targets.gcp.cluster.network import Network
from infra.targets.gcp.cluster.scope import Scope
from infra.targets.gcp.stackfile.target import FilestoreSpec, ManagedLustreSpec

LUSTRE_NAME = "training"
"""Name of the filesystem inside Lustre, at most eight characters."""
SHARE = "training"
_MAX_INSTANCE_ID = 63


def make_filesystem(
    scope: Scope, spec: ManagedLustreSpec | FilestoreSpec, network: Network, keys: Keys
) -> VolumeSource:
    """Make a filesystem of the stack, or use the one that it names; return how folders become volumes."""
    if isinstance(spec, ManagedLustreSpec):
        parent = f"{scope.project}/{_zone(scope, spec.zone)}"
        if spec.existing:
            handle = f"{parent}/{spec.existing.instance}"
            return lustre_volumes(handle, str(spec.existing.address), spec.existing.name)
        made = _lustre(scope, spec, network, keys)
        # `10.0.0.2@tcp:/name` → the address
        address = made.mount_point.apply(lambda point: point.partition("@")[0])
        return lustre_volumes(f"{parent}/{_lustre_id(scope, spec)}", address, LUSTRE_NAME)
    if spec.existing:
        return filestore_volumes(str(spec.existing.address), spec.existing.share)
    share = _filestore(scope, spec, network, keys)
    return filestore_volumes(share.networks.apply(_address), SHARE)


def _address(networks: Sequence[InstanceNetwork]) -> pulumi.Output[str]:
    """The address of the share, which is not known before it is made."""
    addresses = networks[0].ip_addresses or [UNKNOWN]
    return pulumi.Output.from_input(cast(str, addresses[0]))


def _lustre(scope: Scope, spec: ManagedLustreSpec, network: Network, keys: Keys) -> Lustre:
    return Lustre(
        scope.named(spec.role("lustre")),
        instance_id=_lustre_id(scope, spec),
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


def _lustre_id(scope: Scope, spec: ManagedLustreSpec) -> str:
    return names.fit(scope.named(spec.role("lustre")), _MAX_INSTANCE_ID)


def _zone(scope: Scope, zone: str | None) -> str:
    return zone or scope.spec.zones[0]


def lustre_volumes(handle: str, address: pulumi.Input[str], name: str) -> VolumeSource:
    """Volumes of a Lustre filesystem: a folder is mounted by itself, so that no pod sees another team's.

    The driver mounts `<address>@tcp:/<name>`, and Lustre takes a folder at the end of that.
    """

    def source(path: str) -> dict[str, Any]:
        below = f"/{path}" if path else ""
        attributes = {"ip": address, "filesystem": f"{name}{below}"}
        volume = f"{handle}{below.replace('/', '-')}"
        csi = {"driver": "lustre.csi.storage.gke.io", "volumeHandle": volume, "volumeAttributes": attributes}
        return {"csi": csi, "mountOptions": ["flock"]}

    return source


def _filestore(scope: Scope, spec: FilestoreSpec, network: Network, keys: Keys) -> Filestore:
    return Filestore(
        scope.named(spec.role("filestore")),
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
            depends_on=[network.peering] if network.peering else [],
            protect=scope.spec.deletion_protection,
            # The API returns another range, which the provider takes for a replacement at each `up`
            # (terraform-provider-google #12458, #12877, #16548).
            ignore_changes=["networks"],
        ),
    )


def filestore_volumes(address: pulumi.Input[str], share: str) -> VolumeSource:
    """Volumes of a Filestore share, mounted by the nodes' own NFS client."""

    def source(path: str) -> dict[str, Any]:
        folder = f"/{share}/{path}" if path else f"/{share}"
        return {"nfs": {"server": address, "path": folder}, "mountOptions": ["hard", "nconnect=8"]}

    return source
