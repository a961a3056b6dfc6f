"""The AWS target: EKS with managed node groups. One file per part; `AwsCluster` puts them together."""

from infra.targets.aws.cluster.cluster import AwsCluster

__all__ = ["AwsCluster"]
