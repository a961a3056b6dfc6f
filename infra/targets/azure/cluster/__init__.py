"""The Azure target: AKS with agent pools. One file per part; `AzureCluster` puts them together."""

from infra.targets.azure.cluster.cluster import AzureCluster

__all__ = ["AzureCluster"]
