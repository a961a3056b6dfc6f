"""DaemonSets that a target asks for: device plugins (NVIDIA, EFA), fabric installers, and the locked-memory
limit.
"""

from collections.abc import Mapping
from typing import Any

import pulumi

import catalog
from infra.common import names
from infra.common.charts import Manifest
from infra.platform.base import Layer, PlatformContext, metadata
from infra.platform.node_software import fabric_installers, memory_lock
from infra.targets.base import DevicePlugin

NAMESPACE = "kube-system"
IMAGES: Mapping[str, str] = {
    "nvidia": "nvcr.io/nvidia/k8s-device-plugin:v0.19.3"
    "@sha256:25cc340fe6fd53c101e16fc452f503e7a92c219c64a80ed5381784b522dbbf77",
    # The registry of EKS's own charts; the tag's digest is not published.
    "efa": "602401143452.dkr.ecr.us-west-2.amazonaws.com/eks/aws-efa-k8s-device-plugin:v0.5.20",
}
_SOCKETS = "/var/lib/kubelet/device-plugins"
_FABRICS = {
    "efa": ("efa", "efav2", "efav3", "efav4", "efav4-b300"),
    "gib": ("roce", "roce-dra"),
    "gib-arm64": ("roce-nvl72",),
    "tcpxo": ("tcpxo",),
    "device-injector": ("tcpxo",),
    "memory-lock": tuple(fabric.name for fabric in catalog.fabrics() if fabric.pins_memory),
}
"""Plugin → its fabric classes. EFA devices that are claimed have another driver: never both on one node."""


class DevicePlugins(Layer):
    """One DaemonSet per plugin, on the nodes that have such devices."""

    def __init__(self, context: PlatformContext, parent: pulumi.Resource) -> None:
        plugins = context.settings.device_plugins
        super().__init__(context, "device-plugins", {"plugins": list(plugins)}, parent)
        for plugin in plugins:
            nodes = _nodes(plugin, context)
            if plugin == "memory-lock":
                self.add(_daemon_set(memory_lock.NAME, memory_lock.pod(), nodes))
            elif plugin in fabric_installers.NAMES:
                self.add(_daemon_set(fabric_installers.NAMES[plugin], fabric_installers.pod(plugin), nodes))
            else:
                self.add(_daemon_set(f"{plugin}-device-plugin", _pod(plugin), nodes))
        self.register_outputs({})


def _nodes(plugin: DevicePlugin, context: PlatformContext) -> dict[str, Any]:
    """Return the requirement on labels that finds the plugin's nodes."""
    if plugin == "nvidia":
        return {"key": names.ACCELERATOR_LABEL, "operator": "Exists"}
    fabrics = [fabric for fabric in context.fabrics if fabric in _FABRICS[plugin]]
    return {"key": names.FABRIC_LABEL, "operator": "In", "values": fabrics}


def _pod(plugin: DevicePlugin) -> dict[str, Any]:
    return {
        "priorityClassName": "system-node-critical",
        "automountServiceAccountToken": False,
        # The EFA plugin reads the node's network interfaces.
        "hostNetwork": plugin == "efa",
        # Pods use the devices of a node until it is deleted.
        "tolerations": [{"operator": "Exists"}],
        "containers": [_container(plugin, f"{plugin}-device-plugin")],
        "volumes": [
            {"name": "sockets", "hostPath": {"path": _SOCKETS, "type": "Directory"}},
            *_devices(plugin),
        ],
    }


def _daemon_set(name: str, pod: dict[str, Any], nodes: Mapping[str, Any]) -> Manifest:
    labels = {"app.kubernetes.io/name": name}
    required = {"nodeSelectorTerms": [{"matchExpressions": [nodes]}]}
    affinity = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
    return {
        "apiVersion": "apps/v1",
        "kind": "DaemonSet",
        "metadata": metadata(name, NAMESPACE),
        "spec": {
            "selector": {"matchLabels": labels},
            "updateStrategy": {"type": "RollingUpdate"},
            "template": {"metadata": {"labels": labels}, "spec": {**pod, "affinity": affinity}},
        },
    }


def _container(plugin: DevicePlugin, name: str) -> dict[str, Any]:
    mounts = [{"name": "sockets", "mountPath": _SOCKETS}]
    mounts += [
        {"name": volume["name"], "mountPath": volume["hostPath"]["path"]} for volume in _devices(plugin)
    ]
    return {
        "name": name,
        "image": IMAGES[plugin],
        "imagePullPolicy": "IfNotPresent",
        "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "256Mi"}},
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
        "volumeMounts": mounts,
    }


def _devices(plugin: DevicePlugin) -> list[dict[str, Any]]:
    """Return the volumes with device files: NVIDIA's plugin gets its devices from the container runtime."""
    if plugin == "nvidia":
        return []
    return [{"name": "infiniband", "hostPath": {"path": "/dev/infiniband", "type": "Directory"}}]
