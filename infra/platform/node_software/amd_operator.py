"""Chart values and DeviceConfig of AMD's GPU Operator: device plugin, node labels and metrics.

Values: ROCm/gpu-operator v1.5.1, helm-charts-k8s, and its DeviceConfig, read 2026-11-21.
"""

from collections.abc import Callable, Mapping
from typing import Any

from infra.common.charts import Manifest
from infra.common.images import split
from infra.operator_settings.amd_operator import AmdOperatorSettings
from infra.platform.base import metadata

CHART = "gpu-operator-charts"
NAMESPACE = "kube-amd-gpu"


def values(images: Mapping[str, str], *, installs_nfd: bool) -> dict[str, Any]:
    """Return the chart's values: without what builds drivers, and repairs nodes by workflows."""
    found: dict[str, Any] = {
        "node-feature-discovery": {"enabled": installs_nfd},
        "kmm": {"enabled": False, "watch": False},
        "remediation": {"enabled": False, "installCRDs": False},
        # The platform declares its DeviceConfig, with pinned images.
        "crds": {"defaultCR": {"install": False}},
        "controllerManager": {"manager": {"image": _repository(images["operator"])}},
    }
    if installs_nfd:
        found["node-feature-discovery"]["image"] = _repository(images["nfd"])
    return found


def device_config(
    operator: AmdOperatorSettings, relocate: Callable[[str], str], init: str, *, tolerates_all: bool = False
) -> Manifest:
    """Return the operator's configuration of nodes with AMD GPUs, with images mapped by `relocate`."""
    gpus = "amd-vgpu" if operator.has_virtual_functions else "amd-gpu"

    def tolerating(key: str) -> dict[str, Any]:
        return {key: [{"operator": "Exists"}]} if tolerates_all else {}

    return {
        "apiVersion": "amd.com/v1alpha1",
        "kind": "DeviceConfig",
        "metadata": metadata("gpus", NAMESPACE),
        "spec": {
            "selector": {f"feature.node.kubernetes.io/{gpus}": "true"},
            "driver": {"enable": False, "blacklist": False},
            "commonConfig": {
                "initContainerImage": init,
                "utilsContainer": {"image": relocate(operator.utils), "imagePullPolicy": "IfNotPresent"},
            },
            "devicePlugin": {
                "enableDevicePlugin": True,
                "devicePluginImage": relocate(operator.device_plugin),
                "enableNodeLabeller": True,
                "nodeLabellerImage": relocate(operator.node_labeller),
                **tolerating("devicePluginTolerations"),
                **tolerating("nodeLabellerTolerations"),
            },
            "metricsExporter": {
                "enable": True,
                "image": relocate(operator.metrics_exporter),
                "prometheus": {"serviceMonitor": {"enable": operator.has_service_monitor}},
                **tolerating("tolerations"),
            },
        },
    }


def images_of(config: Manifest) -> list[str]:
    """Return the images that a DeviceConfig brings onto the nodes."""
    spec = config["spec"]
    common, plugin = spec["commonConfig"], spec["devicePlugin"]
    return [
        common["initContainerImage"],
        common["utilsContainer"]["image"],
        plugin["devicePluginImage"],
        plugin["nodeLabellerImage"],
        spec["metricsExporter"]["image"],
    ]


def _repository(reference: str) -> dict[str, str]:
    registry, repository, tag = split(reference)
    return {"repository": f"{registry}/{repository}", "tag": tag}
