"""Settings of the Cluster Autoscaler: cloud, cluster, and the node groups that it resizes."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AutoscalerSettings:
    """The upstream Cluster Autoscaler, where the cloud does not run one itself."""

    cloud: Literal["aws"]
    cluster: str
    """Cluster's name in the cloud."""
    region: str
    group_tags: Mapping[str, str]
    """Tags of the node groups that the autoscaler may resize."""
    alike: tuple[str, ...]
    """Labels whose values may differ between groups of one pool."""
