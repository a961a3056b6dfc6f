"""The embedded cluster: a real Kubernetes control plane and nodes, as processes of this host.

Modules are imported on use: commands that reach another cluster need only a few names of this package.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from local.cluster.cluster import ClusterInfo, ClusterStatus, EmbeddedCluster, NodeStatus
    from local.cluster.config import ClusterConfig, NodeConfig, Taint
    from local.cluster.events import PreemptionEvent, read_events
    from local.cluster.preemption import PreemptionRecord

_MODULES = {
    "cluster": ("ClusterInfo", "ClusterStatus", "EmbeddedCluster", "NodeStatus"),
    "config": ("ClusterConfig", "NodeConfig", "Taint"),
    "events": ("PreemptionEvent", "read_events"),
    "preemption": ("PreemptionRecord",),
}

__all__ = [
    "ClusterConfig",
    "ClusterInfo",
    "ClusterStatus",
    "EmbeddedCluster",
    "NodeConfig",
    "NodeStatus",
    "PreemptionEvent",
    "PreemptionRecord",
    "Taint",
    "read_events",
]


def __getattr__(name: str) -> object:
    """Import the module of a name (PEP 562)."""
    for module, exported in _MODULES.items():
        if name in exported:
            return getattr(import_module(f"{__name__}.{module}"), name)
    raise AttributeError(name)
