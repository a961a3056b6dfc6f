"""The on-premises target: a cluster and machines that are there already."""

from infra.providers.onprem.cluster import OnpremCluster

__all__ = ["OnpremCluster"]
