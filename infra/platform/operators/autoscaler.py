"""Installs the Cluster Autoscaler, which adds nodes for queued jobs and removes idle ones, and the CRD of its
ProvisioningRequests.

Values: kubernetes/autoscaler, cluster-autoscaler-chart-9.59.0 (Cluster Autoscaler 1.35.0), read 2026-11-22.
"""

from typing import Any

import pulumi

from infra.common import names
from infra.common.images import split
from infra.operator_settings.autoscaler import AutoscalerSettings
from infra.platform.base import Layer, PlatformContext
from infra.platform.operators.operator import DefinitionsLayer, OperatorPlan
from infra.platform.operators.published import Published
from infra.stackfile.target import minor_of

CHART = "cluster-autoscaler"
NOBODY = 65534
IDLE_GPUS = "0.01"
"""Utilization of accelerators below which a node counts as idle; 0 would never be reached."""


def requests(context: PlatformContext) -> OperatorPlan:
    """Return the definition of ProvisioningRequests: Kueue asks by them where it finds it when it starts."""
    rendered = context.renderer.manifest("provisioning-requests")
    return OperatorPlan("provisioning-requests", names.AUTOSCALER, {}, rendered)


class Autoscaler(Layer):
    """Helm release of the autoscaler, after the definition of ProvisioningRequests, which it watches."""

    def __init__(
        self,
        context: PlatformContext,
        settings: AutoscalerSettings,
        definitions: DefinitionsLayer,
        parent: pulumi.Resource,
    ) -> None:
        super().__init__(context, "autoscaler", {"groupTags": dict(settings.group_tags)}, parent)
        chart = context.artifacts.published[CHART]
        # The autoscaler simulates the scheduler of one Kubernetes minor version.
        minor = minor_of(context.settings.kubernetes_version)
        image = context.settings.software.image(chart.images[f"autoscaler-{minor}"])
        self.ready = Published(
            context,
            chart,
            names.AUTOSCALER,
            values=values(settings, image, context.system_selector),
            images=[image],
            depends_on=definitions.resources,
            parent=self,
            level="restricted",
        ).ready
        self.register_outputs({})


def values(settings: AutoscalerSettings, image: str, system_selector: dict[str, str]) -> dict[str, Any]:
    """Return the chart's values."""
    registry, repository, tag = split(image)
    tags = [f"{key}={value}" for key, value in settings.group_tags.items()]
    return {
        # Its lease, its role and its cloud identity have this name.
        "fullnameOverride": names.AUTOSCALER,
        "rbac": {"serviceAccount": {"name": names.AUTOSCALER}},
        "cloudProvider": settings.cloud,
        "awsRegion": settings.region,
        "autoDiscovery": {"clusterName": settings.cluster, "tags": tags},
        "image": {"repository": f"{registry}/{repository}", "tag": tag},
        "extraArgs": _flags(settings),
        "nodeSelector": dict(system_selector),
        "resources": {"requests": {"cpu": "100m", "memory": "300Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": NOBODY,
            "runAsGroup": NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containerSecurityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": True,
        },
    }


def _flags(settings: AutoscalerSettings) -> dict[str, Any]:
    """Return the flags: a pool's groups count as one, so that a job may have nodes of several.

    Numbers keep the names of repeated flags apart; the chart cuts them off (`_1`).
    """
    alike = {f"balancing-ignore-label_{index}": label for index, label in enumerate(settings.alike, 1)}
    return {
        "logtostderr": True,
        "stderrthreshold": "info",
        "v": 4,
        "enable-provisioning-requests": True,
        # Custom resources have no protobuf encoding.
        "kube-api-content-type": "application/json",
        "expander": "least-waste",
        "balance-similar-node-groups": True,
        **alike,
        "scale-down-gpu-utilization-threshold": IDLE_GPUS,
        "cordon-node-before-terminating": True,
    }
