"""The component of each target: a new target adds its line here."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module

from infra.targets.base import Cluster

CLUSTERS: Mapping[str, str] = {
    "local": "infra.targets.local.cluster.cluster:LocalCluster",
    "aws": "infra.targets.aws.cluster:AwsCluster",
    "gcp": "infra.targets.gcp.cluster:GcpCluster",
    "azure": "infra.targets.azure.cluster:AzureCluster",
    "onprem": "infra.targets.onprem.cluster:OnpremCluster",
    "coreweave": "infra.targets.coreweave.cluster:CoreweaveCluster",
}
"""Kind → module and class, imported on use: a stack needs the SDK of its own target only."""


def cluster_class(kind: str) -> type[Cluster]:
    """Return the component of a kind that the spec has let through."""
    module, name = CLUSTERS[kind].split(":")
    found: type[Cluster] = getattr(import_module(module), name)
    return found
