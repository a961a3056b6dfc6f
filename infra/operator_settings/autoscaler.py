"""Settings of the Cluster Autoscaler."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True)
class AutoscalerSettings:
    """The upstream Cluster Autoscaler, where the cloud does not run one itself."""

    cloud: Literal["aws"]
    cluster: str
    """Its name in the cloud."""
    region: str
    group_tags: Mapping[str, str]
    """Tags by which groups of nodes are known as those that it may resize."""
    alike: tuple[str, ...]
    """Labels in which groups of one pool may differ."""
