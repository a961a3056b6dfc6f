"""The Azure target: AKS with agent pools. One file per part; `AzureCluster` puts them together."""

from infra.providers.azure.cluster import AzureCluster

__all__ = ["AzureCluster"]
