"""Which node groups a pool is made of. Pure."""

from __future__ import annotations

from dataclasses import dataclass

from infra import catalog
from infra.catalog import Machine
from infra.spec.node_pool import NodePoolSpec


@dataclass(frozen=True)
class Group:
    """One managed node group: one machine type."""

    role: str
    pool: NodePoolSpec
    machine: Machine
    zones: tuple[str, ...]
    num_nodes: int

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

    Spot is bought per market (machine type and zone), so that one market that is empty holds up no other;
    nodes are shared out evenly, the first markets getting what is left over.
    """
    zones = pool.zones or zones
    machines = [catalog.machine("aws", name) for name in (pool.machine or "", *(pool.alternatives or ()))]
    if not pool.is_spot:
        return [Group(pool.name, pool, machines[0], zones, pool.num_nodes)]
    markets = [(machine, zone) for machine in machines for zone in zones]
    share, left_over = divmod(pool.num_nodes, len(markets))
    return [
        Group(
            role=f"{pool.name}-{machine.name.replace('.', '-')}-{zone}",
            pool=pool,
            machine=machine,
            zones=(zone,),
            num_nodes=share + (1 if index < left_over else 0),
        )
        for index, (machine, zone) in enumerate(markets)
    ]
