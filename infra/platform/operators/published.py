"""Installs a vendor's published chart as a Helm release, in a separate namespace."""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import pulumi

from infra.common.artifacts import PublishedChart
from infra.common.charts import Manifest
from infra.common.kubernetes_objects import HelmRelease
from infra.platform.base import Layer, PlatformContext, metadata

TIMEOUT_SECONDS = 1200
"""Timeout of a helm installation: longer than the operator's pods take to start. Drivers are installed
after that."""


class Published(Layer):
    """Namespace and release; `ready` is what custom resources of the operator wait for.

    Its inputs name the chart and every image that it brings, for policies and for `trainyard stack images`.
    """

    def __init__(
        self,
        context: PlatformContext,
        chart: PublishedChart,
        namespace: str,
        *,
        values: Mapping[str, Any],
        images: Sequence[str],
        depends_on: Sequence[pulumi.Resource],
        parent: pulumi.Resource,
        critical_pods: int = 0,
        level: Literal["privileged", "restricted"] = "privileged",
    ) -> None:
        """Declare the release; `critical_pods`: GKE admits pods of critical priority only with a quota."""
        source = _source(context, chart)
        super().__init__(context, chart.name, {"chart": source, "images": sorted({*images})}, parent)
        enforced = {"pod-security.kubernetes.io/enforce": level}
        self.namespace = self.add(
            {"apiVersion": "v1", "kind": "Namespace", "metadata": metadata(namespace, labels=enforced)}
        )
        before: list[pulumi.Resource] = [self.namespace]
        if critical_pods:
            before.append(self.add(room_for_critical_pods(namespace, critical_pods), [self.namespace]))
        release = {
            "name": chart.name,
            "namespace": namespace,
            **source,
            "values": dict(values),
            # A failed release is removed, since helm would not reuse its name.
            "atomic": True,
            "timeout": TIMEOUT_SECONDS,
        }
        options = context.access.options(self, [*before, *depends_on])
        self.ready: list[pulumi.Resource] = [HelmRelease(chart.name, release, options)]
        self.register_outputs({})


def room_for_critical_pods(namespace: str, pods: int) -> Manifest:
    """Return the quota without which GKE lets no pod of critical priority into a namespace."""
    critical = ["system-node-critical", "system-cluster-critical"]
    expression = {"scopeName": "PriorityClass", "operator": "In", "values": critical}
    return {
        "apiVersion": "v1",
        "kind": "ResourceQuota",
        "metadata": metadata("critical-pods", namespace),
        "spec": {"hard": {"pods": str(pods)}, "scopeSelector": {"matchExpressions": [expression]}},
    }


def _source(context: PlatformContext, chart: PublishedChart) -> dict[str, Any]:
    mirror = context.settings.software.mirror
    registry = mirror.charts if mirror else chart.repository
    if registry.startswith("oci://"):
        return {"chart": f"{registry}/{chart.name}", "version": chart.version}
    return {"chart": chart.name, "version": chart.version, "repositoryOpts": {"repo": chart.repository}}


def put(values: dict[str, Any], path: str, more: Mapping[str, Any]) -> None:
    """Merge into the values at a dotted path: `driver.manager`."""
    *above, last = path.split(".")
    for key in above:
        values = values.setdefault(key, {})
    values[last] = {**values.get(last, {}), **more}
