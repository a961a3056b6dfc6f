"""The embedded cluster: a real control plane and real nodes, as processes of this machine."""

from local.cluster.cluster import ClusterInfo, ClusterStatus, EmbeddedCluster, NodeStatus
from local.cluster.config import ClusterConfig, NodeConfig, Taint
from local.cluster.events import Event, read_events
from local.cluster.preemption import PreemptionRecord

__all__ = [
    "ClusterConfig",
    "ClusterInfo",
    "ClusterStatus",
    "EmbeddedCluster",
    "Event",
    "NodeConfig",
    "NodeStatus",
    "PreemptionRecord",
    "Taint",
    "read_events",
]
