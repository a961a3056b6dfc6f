"""What a fabric class asks of a pod, from the catalogue."""

from __future__ import annotations

from typing import Any

from infra import catalog, names

_MEMORY = {"name": "shared-memory", "emptyDir": {"medium": "Memory"}}
_MEMORY_MOUNT = {"name": "shared-memory", "mountPath": "/dev/shm"}  # noqa: S108 -- where NCCL looks for it


def resources(fabric: str, accelerators: int) -> dict[str, int | str]:
    """Return the limits of a pod with so many accelerators; with a fabric these are a whole machine's."""
    return {names.ACCELERATOR_RESOURCE: accelerators, **catalog.fabric(fabric).pod_resources}


def environment(fabric: str) -> dict[str, str]:
    """Return the variables that NCCL needs to find the fabric."""
    return dict(catalog.fabric(fabric).environment)


def with_shared_memory(pod: dict[str, Any]) -> dict[str, Any]:
    """Give the pod as much /dev/shm as it has memory: the runtime's 64 MiB are too few for NCCL's buffers."""
    containers = [
        {**container, "volumeMounts": [*container["volumeMounts"], _MEMORY_MOUNT]}
        for container in pod["containers"]
    ]
    return {**pod, "containers": containers, "volumes": [*pod["volumes"], _MEMORY]}
