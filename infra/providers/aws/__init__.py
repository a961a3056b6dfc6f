"""The AWS target: EKS with managed node groups. One file per part; `AwsCluster` puts them together."""

from infra.providers.aws.cluster import AwsCluster

__all__ = ["AwsCluster"]
