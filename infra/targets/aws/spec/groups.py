"""Which node groups a pool is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

import catalog
from catalog import Machine
from catalog.purchases.aws import markets, shares
from infra.spec.node_pool import NodePoolSpec


@dataclass(frozen=True)
class Group:
    """One managed node group: one machine type."""

    role: str
    pool: NodePoolSpec
    machine: Machine
    zones: tuple[str, ...]
    num_nodes: int
    min_nodes: int

    @property
    def is_autoscaled(self) -> bool:
        """Whether its nodes come and go with the jobs that want them."""
        return self.pool.is_autoscaled

    @property
    def is_block(self) -> bool:
        """Whether it draws on a capacity block, which ends by itself."""
        return self.pool.reservation is not None and self.pool.reservation.kind == "block"

    @property
    def has_placement_group(self) -> bool:
        """On demand only: a reservation has its place already, and spot takes what there is."""
        return self.pool.capacity == "on-demand" and self.machine.efa is not None


def groups(pool: NodePoolSpec, zones: tuple[str, ...]) -> list[Group]:
    """Return the groups of a pool; `zones` are the stack's.

    Spot is bought per market (machine type and zone), so that one market that is empty holds up no other.
    A pool that is autoscaled has a group per zone: EC2 evens out the zones of a group that lost a node in
    one of them, and would take a node with a job. Nodes are shared out evenly, the first groups getting what
    is left over.
    """
    machines = (pool.machine or "", *(pool.alternatives or ()))
    bought = markets(machines, pool.zones or zones, per_zone=pool.is_spot or pool.is_autoscaled)
    most = shares(pool.num_nodes, len(bought))
    least = shares(pool.num_nodes if pool.min_nodes is None else pool.min_nodes, len(bought))
    return [
        Group(_role(pool, name, of), pool, catalog.machine("aws", name), of, num_nodes, min_nodes)
        for (name, of), num_nodes, min_nodes in zip(bought, most, least, strict=True)
    ]


def _role(pool: NodePoolSpec, machine: str, zones: tuple[str, ...]) -> str:
    if pool.is_spot:
        return f"{pool.name}-{machine.replace('.', '-')}-{zones[0]}"
    return f"{pool.name}-{zones[0]}" if pool.is_autoscaled else pool.name
