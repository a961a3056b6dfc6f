"""The Azure target: AKS with agent pools. `AzureCluster` composes its parts, a module each."""

from infra.targets.azure.cluster.cluster import AzureCluster

__all__ = ["AzureCluster"]
