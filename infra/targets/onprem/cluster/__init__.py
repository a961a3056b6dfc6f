"""The on-premises target: a cluster and machines that exist already."""

from infra.targets.onprem.cluster.cluster import OnpremCluster

__all__ = ["OnpremCluster"]
