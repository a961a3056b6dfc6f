"""Chart values of the NFS CSI driver.

Values: kubernetes-csi/csi-driver-nfs v4.13.4, charts/v4.13.4, read 2026-11-21.
"""

from collections.abc import Mapping
from typing import Any

from infra.common.images import split

CHART = "csi-driver-nfs"
NAMESPACE = "csi-driver-nfs"


def values(images: Mapping[str, str], system_selector: Mapping[str, str]) -> dict[str, Any]:
    """Return the chart's values: whole references, and no snapshots, which checkpoints do not need."""
    return {
        "image": {name: _reference(image) for name, image in images.items()},
        "controller": {"enableSnapshotter": False, "nodeSelector": dict(system_selector)},
    }


def _reference(reference: str) -> dict[str, str]:
    registry, repository, tag = split(reference)
    return {"repository": f"{registry}/{repository}", "tag": tag}
