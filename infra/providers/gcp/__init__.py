"""The Google Cloud target: GKE with node pools. One file per part; `GcpCluster` puts them together."""

from infra.providers.gcp.cluster import GcpCluster

__all__ = ["GcpCluster"]
