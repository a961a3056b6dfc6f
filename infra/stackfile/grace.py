"""Computes the `terminationGracePeriodSeconds` of a runtime's pods: the stack's setting, or else the longest
preemption notice of the runtime's pools (300 s for a pool without one).
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Annotated

import catalog
from infra.stackfile.base import Quantity

if TYPE_CHECKING:
    from infra.stackfile.node_pool import NodePoolSpec

LASTING_SECONDS = 300
"""Grace on nodes that no cloud preempts: maximum wait of drains and of preemptions by the queue. It is
below the limits of the clouds' own drains: EKS 15 min (managed node groups, update behavior), AKS 30 min
(node drain timeout), GKE 60 min (surge upgrades), Cluster Autoscaler 10 min
(max-graceful-termination-sec)."""
GraceSeconds = Annotated[int, Quantity("s", 10, 3600)]


def runtime_grace_seconds(runtime: str, notices: Iterable[int | None], asked: Mapping[str, int]) -> int:
    """Return the grace of a runtime's pods: what the stack sets, or the longest that one of its pools gives.

    A pod has its grace before the queue chooses its pool, and cannot know the pool later: of a node's labels,
    the downward API has zone and region alone. The longest does no harm on spot: a node ends its pods within
    the preemption notice (the kubelet's graceful shutdown takes the shorter of the two), and a checkpoint
    that was cut off was never committed. The shortest would cut off every drain and preemption elsewhere.

    Args:
        runtime: its name, such as `torch-tcp`.
        notices: seconds of preemption notice of each pool that has the runtime; None for pools not on spot.
        asked: what the stack sets, runtime to seconds.
    """
    given = [LASTING_SECONDS if notice is None else notice for notice in notices]
    return asked.get(runtime) or max(given, default=LASTING_SECONDS)


def pool_notice(target: str, pool: "NodePoolSpec") -> int | None:
    """Return the seconds that pods have before a preempted node ends; None for pools that are not spot."""
    return catalog.usable_notice_seconds(target) if pool.is_spot else None


def runtime_notices(target: str, pools: "Iterable[NodePoolSpec]", runtime: str) -> list[int | None]:
    """Return the preemption notice of each pool that has the runtime."""
    fabric = runtime.partition("-")[2]
    return [pool_notice(target, pool) for pool in pools if pool.accelerator and pool.fabric == fabric]
