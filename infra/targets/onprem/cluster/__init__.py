"""The on-premises target: a Kubernetes cluster whose nodes exist already."""

from infra.targets.onprem.cluster.cluster import OnpremCluster

__all__ = ["OnpremCluster"]
