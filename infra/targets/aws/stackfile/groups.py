"""Splits a pool into EKS managed node groups by zone, market and launch template, without using Pulumi."""

from dataclasses import dataclass

from catalog import Machine
from catalog.purchases.aws import markets, shares
from infra.stackfile.node_pool import NodePoolSpec


@dataclass(frozen=True)
class NodeGroup:
    """One managed node group: machine types that one launch template serves."""

    role: str
    pool: NodePoolSpec
    machines: tuple[Machine, ...]
    zones: tuple[str, ...]
    num_nodes: int
    min_nodes: int

    @property
    def machine(self) -> Machine:
        """The preferred machine type; its launch template fits the others too."""
        return self.machines[0]

    @property
    def is_autoscaled(self) -> bool:
        """Whether the autoscaler adds and removes nodes."""
        return self.pool.is_autoscaled

    @property
    def is_block(self) -> bool:
        """Whether it uses a capacity block, which ends at a fixed time."""
        return self.pool.reservation is not None and self.pool.reservation.kind == "block"

    @property
    def grows_after_creation(self) -> bool:
        """Whether the group is created empty and grows as capacity becomes available; `up` does not wait.

        A group whose nodes cannot be launched at creation becomes CREATE_FAILED and can no longer be updated
        (aws/containers-roadmap#2204). The system pool has its size at once: operators run on it.
        """
        return not self.pool.is_system and not self.is_autoscaled

    @property
    def has_placement_group(self) -> bool:
        """On-demand pools only: a block is placed, a reservation names its own, spot uses any capacity."""
        return self.pool.capacity == "on-demand" and self.machine.efa is not None


def groups(pool: NodePoolSpec, zones: tuple[str, ...]) -> list[NodeGroup]:
    """Return the groups of a pool; `zones` are the stack's.

    A spot pool is one group over all its markets (machine types and zones), so that EC2 takes nodes from
    where there are any; machines that need another launch template have another group. A pool that is
    autoscaled has a group per zone, on spot one per market: EC2 evens out the zones of a group that lost a
    node in one of them, and would take a node with a job. Nodes are divided evenly; the first groups
    get the remainder.
    """
    if pool.is_spot and not pool.is_autoscaled:
        return _over_markets(pool, pool.zones or zones)
    machines = (pool.machine or "", *(pool.alternatives or ()))
    bought = markets(machines, pool.zones or zones, per_zone=pool.is_autoscaled)
    most = shares(pool.num_nodes, len(bought))
    least = shares(pool.num_nodes if pool.min_nodes is None else pool.min_nodes, len(bought))
    return [
        NodeGroup(_role(pool, name, of), pool, (pool.known_machine("aws", name),), of, num_nodes, min_nodes)
        for (name, of), num_nodes, min_nodes in zip(bought, most, least, strict=True)
    ]


def _over_markets(pool: NodePoolSpec, zones: tuple[str, ...]) -> list[NodeGroup]:
    """Group machine types that share a launch template: the same network cards and kind of disks."""
    alike: dict[object, list[Machine]] = {}
    for name in (pool.machine or "", *(pool.alternatives or ())):
        machine = pool.known_machine("aws", name)
        alike.setdefault((machine.efa, bool(machine.local_nvme_gib)), []).append(machine)
    parts = shares(pool.num_nodes, len(alike))
    return [
        NodeGroup(
            _role(pool, found[0].name, zones, alone=len(alike) == 1 and len(found) * len(zones) > 1),
            pool,
            tuple(found),
            zones,
            number,
            0,
        )
        for found, number in zip(alike.values(), parts, strict=True)
    ]


def _role(pool: NodePoolSpec, machine: str, zones: tuple[str, ...], *, alone: bool = False) -> str:
    if alone:
        return pool.name
    if pool.is_spot:
        market = f"{pool.name}-{machine.replace('.', '-')}"
        return f"{market}-{zones[0]}" if len(zones) == 1 else market
    return f"{pool.name}-{zones[0]}" if pool.is_autoscaled else pool.name
