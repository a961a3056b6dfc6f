"""The CoreWeave target: CKS with node pools. One file per part; `CoreweaveCluster` puts them together."""

from infra.providers.coreweave.cluster import CoreweaveCluster

__all__ = ["CoreweaveCluster"]
