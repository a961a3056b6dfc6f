"""Pod specs for GKE nodes: one for each installer of an NCCL plugin (gIB, gIB for Arm, TCPXO), and one that
runs the device injector.

These pods run as root, since they change the node; Google Cloud publishes no other way.
Images and paths: GoogleCloudPlatform/container-engine-accelerators, read 2026-11-21.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from infra.platform.programs import program

PAUSE = "gke.gcr.io/pause:3.8@sha256:880e63f94b145e46f1b1082bb71b85e21f16b99b180b9996407d61240ceb9830"
GIB = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib:v1.1.1"
GIB_ARM64 = "us-docker.pkg.dev/gce-ai-infra/gpudirect-gib/nccl-plugin-gib-arm64:v1.1.0"
TCPXO = "us-docker.pkg.dev/gce-ai-infra/gpudirect-tcpxo/nccl-plugin-gpudirecttcpx-dev:v1.0.15"
"""Image of the TCPXO installer; its version must match the sidecar's (catalog/data/fabrics.yaml)."""
NODE_SHELL = "docker.io/library/ubuntu:24.04"
DEVICE_INJECTOR = (
    "gcr.io/gke-release/nri-device-injector"
    "@sha256:6e79483d52abdc28454bf186320b10a56b0f117a10e8d65d5c74dbb821a76970"
)
_LIBRARIES = "/home/kubernetes/bin/nvidia/lib64"

NAMES: Mapping[str, str] = {
    "gib": "nccl-rdma-installer",
    "gib-arm64": "nccl-rdma-arm64-installer",
    "tcpxo": "nccl-tcpxo-installer",
    "device-injector": "device-injector",
}
"""Installer → name of its DaemonSet, as in Google Cloud's guides."""


def pod(installer: str) -> dict[str, Any]:
    """Return the pod of an installer; the DaemonSet selects the nodes."""
    made = {
        "gib": lambda: _gib(GIB),
        "gib-arm64": lambda: _gib(GIB_ARM64),
        "tcpxo": _tcpxo,
        "device-injector": _device_injector,
    }[installer]()
    return {
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        "hostNetwork": True,
        "hostPID": True,
        # Pods use the devices of a node until it is deleted.
        "tolerations": [{"operator": "Exists"}],
        **made,
    }


def _gib(image: str) -> dict[str, Any]:
    paths = {"libraries": _LIBRARIES, "gib": "/home/kubernetes/bin/gib"}
    mounts = {name: f"/host{path}" for name, path in paths.items()}
    install = _root("install", image, ["/bin/sh", "-c", program("install_gib.sh")], mounts)
    return {"initContainers": [install], "containers": [_rest()], "volumes": _volumes(paths)}


def _tcpxo() -> dict[str, Any]:
    # Runs in the namespaces of the node's process 1, to use the node's tools and devices.
    on_node = ["nsenter", "--target", "1", "--all", "--", "/bin/sh", "-c", program("open_tcpxo.sh")]
    install = _root(
        "install",
        TCPXO,
        ["/bin/sh", "-c", program("install_tcpxo.sh")],
        {"state": "/var/lib", "libraries": "/usr/local"},
    )
    return {
        "initContainers": [_root("open", NODE_SHELL, on_node, {}), install],
        "containers": [_rest()],
        "volumes": _volumes({"state": "/var/lib", "libraries": "/home/kubernetes/bin"}),
    }


def _device_injector() -> dict[str, Any]:
    paths = {"devices": "/dev", "nri": "/var/run/nri"}
    return {
        "containers": [_root("device-injector", DEVICE_INJECTOR, None, paths)],
        "volumes": _volumes(paths),
    }


def _root(name: str, image: str, command: Sequence[str] | None, mounts: Mapping[str, str]) -> dict[str, Any]:
    return {
        "name": name,
        "image": image,
        "imagePullPolicy": "IfNotPresent",
        **({"command": list(command)} if command else {}),
        "resources": {"requests": {"cpu": "150m"}},
        "securityContext": {"privileged": True},
        "volumeMounts": [{"name": volume, "mountPath": path} for volume, path in mounts.items()],
    }


def _rest() -> dict[str, Any]:
    """Return the container that sleeps forever after a DaemonSet's init containers have done the work."""
    return {
        "name": "pause",
        "image": PAUSE,
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "1m", "memory": "8Mi"}, "limits": {"memory": "32Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }


def _volumes(paths: Mapping[str, str]) -> list[dict[str, Any]]:
    return [
        {"name": name, "hostPath": {"path": path, "type": "DirectoryOrCreate"}}
        for name, path in paths.items()
    ]
