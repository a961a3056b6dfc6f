"""The Google Cloud target: GKE with node pools. `GcpCluster` composes its parts, a module each."""

from infra.targets.gcp.cluster.cluster import GcpCluster

__all__ = ["GcpCluster"]
