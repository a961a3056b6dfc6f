"""The AWS target: EKS with managed node groups. `AwsCluster` composes its parts, a module each."""

from infra.targets.aws.cluster.cluster import AwsCluster

__all__ = ["AwsCluster"]
