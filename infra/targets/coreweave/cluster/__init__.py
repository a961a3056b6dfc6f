"""The CoreWeave target: CKS with node pools. `CoreweaveCluster` composes its parts, a module each."""

from infra.targets.coreweave.cluster.cluster import CoreweaveCluster

__all__ = ["CoreweaveCluster"]
