"""Splits a pool of the stack file into GKE node pools: one per multi-host TPU slice or NVLink rack, else one
for all nodes. It creates no Pulumi resources.
"""

from dataclasses import dataclass
from math import prod

import catalog
from catalog import Machine, Rack
from infra.stackfile.node_pool import NodePoolSpec


@dataclass(frozen=True)
class GkePool:
    """A GKE node pool: one machine type; one slice of multi-host TPUs; or one rack."""

    role: str
    pool: NodePoolSpec
    machine: Machine
    zones: tuple[str, ...]
    num_nodes: int

    @property
    def is_slice(self) -> bool:
        """Whether its nodes are one TPU slice, which is created and deleted as a whole."""
        return self.pool.topology is not None and num_hosts(self.pool.topology, self.machine) > 1

    @property
    def rack(self) -> Rack | None:
        """The rack of its machine type; None if the nodes are in no rack."""
        return catalog.find_rack(self.machine.accelerator or "")

    @property
    def grows_after_creation(self) -> bool:
        """Whether the group is created empty and grows as capacity becomes available; `up` does not wait.

        Creating a node pool with nodes fails where Compute Engine has no capacity. The system pool has its
        size at once, since operators run on it; slices and racks are created as a whole or not at all.
        """
        whole = self.is_slice or self.rack is not None
        return not self.pool.is_system and not self.pool.provisioning and not whole

    @property
    def is_compact(self) -> bool:
        """Whether it has compact placement: by `placement`, or an on-demand pool with a GPU fabric."""
        on_fabric = self.pool.fabric not in ("tcp", "ici")
        belongs = on_fabric and self.pool.capacity == "on-demand" and not self.pool.provisioning
        return self.pool.placement == "compact" or belongs


def groups(pool: NodePoolSpec, zones: tuple[str, ...]) -> list[GkePool]:
    """Return the node pools of a pool; `zones` are the stack's.

    GKE has one node pool per slice of several hosts, and per rack. All else is one node pool over its zones.
    """
    zones = pool.zones or zones
    machine = pool.known_machine("gcp")
    rack = catalog.find_rack(machine.accelerator or "")
    if rack:
        racks = range(-(-pool.num_nodes // rack.machines))
        size = min(pool.num_nodes, rack.machines)
        return [GkePool(f"{pool.name}-{index}", pool, machine, zones, size) for index in racks]
    hosts = num_hosts(pool.topology, machine) if pool.topology else 1
    if hosts == 1:
        return [GkePool(pool.name, pool, machine, zones, pool.num_nodes)]
    slices = range(pool.num_nodes // hosts)
    return [GkePool(f"{pool.name}-{index}", pool, machine, zones, hosts) for index in slices]


def num_hosts(topology: str, machine: Machine) -> int:
    """Return how many nodes a slice of this shape has: `4x4` of nodes with 4 chips is 4."""
    chips = prod(int(side) for side in topology.split("x"))
    return max(1, chips // machine.num_accelerators)
