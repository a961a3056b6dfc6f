"""AWS partitions: the one of a region, and those that stacks do not support."""

USUAL = "aws"
OTHERS = {"cn-": "aws-cn", "us-gov-": "aws-us-gov", "eusc-": "aws-eusc"}
"""Prefix of a region's name → its partition (AWS General Reference, "Amazon Resource Names")."""
UNSERVED = frozenset({"aws-cn", "aws-eusc"})
"""Partitions that stacks do not support: their endpoints have another domain (amazonaws.com.cn,
amazonaws.eu)."""


def partition_of(region: str) -> str:
    """Return the partition that a region is in."""
    return next((name for prefix, name in OTHERS.items() if region.startswith(prefix)), USUAL)
