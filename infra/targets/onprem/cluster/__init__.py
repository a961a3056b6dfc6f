"""The on-premises target: labels the nodes of an existing cluster and installs software on them."""

from infra.targets.onprem.cluster.cluster import OnpremCluster

__all__ = ["OnpremCluster"]
