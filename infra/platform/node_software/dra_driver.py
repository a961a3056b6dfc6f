"""Chart values of NVIDIA's DRA driver, used for NVLink domains only.

Values: kubernetes-sigs/dra-driver-nvidia-gpu v0.4.1, deployments/helm, read 2026-11-22.
"""

from collections.abc import Mapping
from typing import Any

from infra.common import names
from infra.common.images import split
from infra.operator_settings.dra_driver import DraDriverSettings

CHART = "dra-driver-nvidia-gpu"
NAMESPACE = "dra-driver-nvidia-gpu"
CRITICAL_PODS = 1000
"""Quota of critical pods, which are the driver's and the domain daemons': two on each node."""


def values(
    driver: DraDriverSettings, images: Mapping[str, str], system_selector: Mapping[str, str]
) -> dict[str, Any]:
    """Return the chart's values; it runs on nodes in a domain, by fabric or GPU Feature Discovery."""
    registry, repository, tag = split(images["driver"])
    found = {"key": names.CLIQUE_LABEL, "operator": "Exists"}
    of_fabric = {"key": names.FABRIC_LABEL, "operator": "In", "values": [driver.fabric]}
    required = {"nodeSelectorTerms": [{"matchExpressions": [of_fabric if driver.fabric else found]}]}
    # The stack's nodes have its taints and the cloud's, such as GKE's for Arm.
    tolerations = {"tolerations": [{"operator": "Exists"}]} if driver.tolerates_all else {}
    return {
        "image": {"repository": f"{registry}/{repository}", "tag": tag},
        "nvidiaDriverRoot": driver.driver_root,
        "resources": {"gpus": {"enabled": False}, "computeDomains": {"enabled": True}},
        "controller": {"nodeSelector": dict(system_selector)},
        "kubeletPlugin": {
            "affinity": {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}},
            **tolerations,
        },
    }
