"""Computes each team's limits of pods, CPUs and memory, from its pools where the stack sets none, and the
accelerators of each pool that its queues can use.
"""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import QueueSpec, TeamSpec, most

_JOB_PODS, _PODS = 100, 500
_UNKNOWN_CPUS, _UNKNOWN_MEMORY_GIB = 256, 4096
"""Size of a node of an unknown machine type: larger than any machine type in the catalogue."""
_AGAIN = 2
"""Factor for restarts of a job, when pods that end exist beside pods that start."""


@dataclass(frozen=True)
class TeamLimits:
    """Limits of a team's namespace that depend on its pools."""

    job_pods: int
    pods: int
    cpus: int
    memory_gib: int


def limits_of(team: TeamSpec, queues: Sequence[QueueSpec], pools: Sequence[NodePoolSpec]) -> TeamLimits:
    """Return the team's declared limits; by default, what its pools add up to."""
    declared, found = team.limits, _pools_of(team, queues, pools)
    accelerators = [pool.num_accelerators for pool in found]
    machines = [_machines(pool) for pool in found]
    job_pods = declared.job_pods or max((_JOB_PODS, *accelerators))
    return TeamLimits(
        job_pods,
        declared.pods or max(_PODS, _AGAIN * sum(accelerators), job_pods),
        declared.cpus or _AGAIN * sum(cpus for cpus, _ in machines),
        declared.memory_gib or _AGAIN * sum(memory for _, memory in machines),
    )


@dataclass(frozen=True)
class PoolShare:
    """Accelerators of a pool: the maximum for a team's queues, and the total."""

    pool: str
    allowed: int
    present: int


def shares_of(team: TeamSpec, queues: Sequence[QueueSpec], pools: Sequence[NodePoolSpec]) -> list[PoolShare]:
    """Return a share per pool of the team's queues."""
    allowed: Counter[str] = Counter()
    for queue in queues:
        if queue.name in team.queues:
            allowed.update({flavor.pool: most(queue, flavor, queues) for flavor in queue.flavors})
    return [
        PoolShare(pool.name, min(allowed[pool.name], pool.num_accelerators), pool.num_accelerators)
        for pool in pools
        if pool.name in allowed
    ]


def _pools_of(
    team: TeamSpec, queues: Sequence[QueueSpec], pools: Sequence[NodePoolSpec]
) -> list[NodePoolSpec]:
    """Pools of its queues, and those for work beside the jobs with accelerators."""
    named = {flavor.pool for queue in queues if queue.name in team.queues for flavor in queue.flavors}
    return [pool for pool in pools if pool.name in named or (not pool.accelerator and not pool.is_system)]


def _machines(pool: NodePoolSpec) -> tuple[int, int]:
    """Return processors and memory of all nodes of a pool, by its largest machine."""
    found = [pool.find_machine(name) for name in (pool.machine, *(pool.alternatives or ()))]
    cpus = max(each.vcpus if each else _UNKNOWN_CPUS for each in found)
    memory = max(float(each.memory_gib or 0) if each else 0.0 for each in found)
    return pool.num_nodes * cpus, pool.num_nodes * (math.ceil(memory) or _UNKNOWN_MEMORY_GIB)
