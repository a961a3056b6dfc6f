"""The on-premises target: a cluster and machines that are there already."""

from infra.targets.onprem.cluster.cluster import OnpremCluster

__all__ = ["OnpremCluster"]
