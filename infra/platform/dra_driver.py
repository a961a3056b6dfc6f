"""NVIDIA's driver for Dynamic Resource Allocation, for NVLink domains alone: GPUs stay the device plugin's.

Values: kubernetes-sigs/dra-driver-nvidia-gpu v0.4.1, deployments/helm, read 2026-11-22.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from infra import names
from infra.platform.images import split
from infra.providers.base import DraDriver

CHART = "dra-driver-nvidia-gpu"
NAMESPACE = "dra-driver-nvidia-gpu"


def values(
    driver: DraDriver, images: Mapping[str, str], system_selector: Mapping[str, str]
) -> dict[str, Any]:
    """Return the chart's values; it runs on the machines that GPU Feature Discovery found in a domain."""
    registry, repository, tag = split(images["driver"])
    in_a_domain = {"matchExpressions": [{"key": names.CLIQUE_LABEL, "operator": "Exists"}]}
    required = {"nodeSelectorTerms": [in_a_domain]}
    return {
        "image": {"repository": f"{registry}/{repository}", "tag": tag},
        "nvidiaDriverRoot": driver.driver_root,
        "resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}},
        "controller": {"nodeSelector": dict(system_selector)},
        "kubeletPlugin": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}}
        },
    }
