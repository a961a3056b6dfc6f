"""The CoreWeave target: CKS with node pools. One file per part; `CoreweaveCluster` puts them together."""

from infra.targets.coreweave.cluster.cluster import CoreweaveCluster

__all__ = ["CoreweaveCluster"]
