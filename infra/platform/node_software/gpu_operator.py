"""Chart values of NVIDIA's GPU Operator: driver, container toolkit, device plugin, metrics.

Values: NVIDIA/gpu-operator v26.3.3, deployments/gpu-operator, read 2026-11-21.
"""

from collections.abc import Mapping
from typing import Any

from infra.common.images import parts, split
from infra.operator_settings.gpu_operator import GpuOperatorSettings
from infra.operator_settings.node_software import NodeSoftwareSettings
from infra.platform.operators.published import put

CHART = "gpu-operator"
NAMESPACE = "gpu-operator"
_PATHS: Mapping[str, tuple[str, ...]] = {
    "operator": ("operator", "validator"),
    "driver": ("driver",),
    "driver-manager": ("driver.manager",),
    "toolkit": ("toolkit",),
    "device-plugin": ("devicePlugin", "gfd"),
    "dcgm-exporter": ("dcgmExporter",),
    "mig-manager": ("migManager",),
    "gdrcopy": ("gdrcopy",),
}
"""Image → path in the chart's values of its repository, image and version."""
_SOCKETS = dict.fromkeys(("k3s", "rke2"), "/run/k3s/containerd/containerd.sock")
"""Distribution → socket of its own containerd (RKE2, "GPU Operators", v26.3.x; k3s has the same). The paths
of its configuration that NVIDIA once documented break it at the next start (gpu-operator#992)."""


def values(
    operator: GpuOperatorSettings,
    software: NodeSoftwareSettings,
    images: Mapping[str, str],
    *,
    installs_nfd: bool,
) -> dict[str, Any]:
    """Return the chart's values; with Node Feature Discovery where no other operator brings it."""
    infiniband, socket = software.network_operator, _SOCKETS.get(operator.container_runtime)
    found: dict[str, Any] = {
        "nfd": {"enabled": installs_nfd},
        "driver": {
            "enabled": operator.installs_driver,
            # A new driver waits until its node is drained by hand, since installing it ends the node's jobs.
            "upgradePolicy": {"autoUpgrade": False},
            "rdma": {
                "enabled": infiniband is not None,
                # The NIC driver is part of the node's OS: it is in the host's folders, not in a container.
                "useHostMofed": infiniband is not None and not infiniband.installs_driver,
            },
        },
        "gdrcopy": {"enabled": infiniband is not None and operator.installs_driver},
        "dcgmExporter": {"serviceMonitor": {"enabled": operator.has_service_monitor}},
        **({"daemonsets": {"tolerations": [{"operator": "Exists"}]}} if software.tolerates_all else {}),
        "toolkit": {"env": [{"name": "CONTAINERD_SOCKET", "value": socket}]} if socket else {},
        # Nothing here runs virtual machines.
        "sandboxWorkloads": {"enabled": False},
    }
    for name, paths in _PATHS.items():
        for path in paths:
            put(found, path, parts(images[name]))
    registry, repository, tag = split(images["nfd"])
    worker = {"worker": {"tolerations": [{"operator": "Exists"}]}} if software.tolerates_all else {}
    features = {"image": {"repository": f"{registry}/{repository}", "tag": tag}, **worker}
    return {**found, "node-feature-discovery": features} if installs_nfd else found


def images_used(
    operator: GpuOperatorSettings,
    software: NodeSoftwareSettings,
    images: Mapping[str, str],
    *,
    installs_nfd: bool,
) -> list[str]:
    """Return the images that come onto the nodes; those with kernel modules are the operating system's."""
    used = ["operator", "toolkit", "device-plugin", "dcgm-exporter", "mig-manager"]
    used += ["nfd"] if installs_nfd else []
    modules: list[str] = []
    if operator.installs_driver:
        used.append("driver-manager")
        modules = ["driver", "gdrcopy"] if software.network_operator else ["driver"]
    return [*(images[name] for name in used), *(f"{images[name]}-{software.node_os}" for name in modules)]
