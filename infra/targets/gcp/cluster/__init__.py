"""The Google Cloud target: GKE with node pools. One file per part; `GcpCluster` puts them together."""

from infra.targets.gcp.cluster.cluster import GcpCluster

__all__ = ["GcpCluster"]
