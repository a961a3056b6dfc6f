"""Volumes and storage class of an NFS export, by the NFS CSI driver."""

from typing import Any

from infra.targets.base import StorageClass, VolumeSource
from infra.targets.onprem.stackfile.target import NfsSpec

DRIVER = "nfs.csi.k8s.io"


def nfs_volumes(spec: NfsSpec) -> VolumeSource:
    """Volumes of the export: a folder is mounted by itself, so that no pod sees another team's."""

    def source(path: str) -> dict[str, Any]:
        share = f"{spec.share}/{path}" if path else spec.share
        csi = {
            "driver": DRIVER,
            # Only has to be unique: the driver does not read it.
            "volumeHandle": f"{spec.server}{share}",
            "volumeAttributes": {"server": spec.server, "share": share},
        }
        # `hard`: clients wait for a server that restarts, so no write fails.
        options = ["nfsvers=4.1", "hard", f"nconnect={spec.connections}"]
        return {"csi": csi, "mountOptions": options}

    return source


def shared_class(spec: NfsSpec) -> StorageClass:
    """Volumes on demand: folders of the export, one for each claim."""
    return StorageClass("nfs", DRIVER, {"server": spec.server, "share": f"{spec.share}/volumes"})
