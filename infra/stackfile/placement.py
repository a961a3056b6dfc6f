"""Chooses queue, runtime and pools for a job that states what it needs; `meets` judges each pool."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import catalog
from infra.common import names
from infra.stackfile.fabric import PLAIN_FABRICS, RDMA
from infra.stackfile.job import JobSpec, NeedsSpec
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import QueueSpec, TeamSpec, most


@dataclass(frozen=True)
class Placement:
    """Queue, runtime and pools that a job's needs select on a stack."""

    queue: str
    runtime: str
    pools: tuple[str, ...]
    """Suitable pools among the queue's flavors, in the queue's order."""


@dataclass(frozen=True)
class FlavorOffer:
    """A flavor that a team's jobs can be admitted to."""

    queue: str
    pool: NodePoolSpec
    quota: int
    """Quota of accelerators, including what the cohort lends."""

    @property
    def memory_gib(self) -> float | None:
        """Memory of one accelerator in GiB; None where it is unknown."""
        return None if self.pool.accelerator is None else _memory_gib(self.pool.accelerator.model)

    def num_slots(self, accelerators: int) -> int:
        """Nodes (pods) of a job that fit, with so many accelerators each."""
        return min(self.pool.num_slots(accelerators), self.quota // accelerators)

    def __str__(self) -> str:
        accelerator = self.pool.accelerator
        if accelerator is None:
            return f"{self.pool.name}: no accelerators"
        memory = f" of {self.memory_gib:g} GiB" if self.memory_gib else ""
        what = f"{self.num_slots(accelerator.count)} × {accelerator.count} {accelerator.model}{memory}"
        return f"{self.pool.name} ({what}, {self.pool.fabric}, {'/'.join(_frameworks(self.pool))})"


def offers(
    team: TeamSpec, queues: Sequence[QueueSpec], pools: Sequence[NodePoolSpec], queue: str = ""
) -> Iterator[FlavorOffer]:
    """Return the offers of a team's queues, or of one of them, the preferred first."""
    known: Mapping[str, NodePoolSpec] = {pool.name: pool for pool in pools}
    by_name = {each.name: each for each in queues}
    for name in team.queues:
        if name in by_name and queue in {"", name}:
            for flavor in by_name[name].flavors:
                if flavor.pool in known:
                    yield FlavorOffer(name, known[flavor.pool], most(by_name[name], flavor, queues))


def place(job: JobSpec, needs: NeedsSpec, found: Sequence[FlavorOffer]) -> Placement | None:
    """Return the first queue with room for all of the job in one flavor; None where there is none.

    One that lasts must be among the flavors: without spot capacity the job continues there.
    """
    for queue in dict.fromkeys(offer.queue for offer in found):
        good = [offer for offer in found if offer.queue == queue and _satisfies(offer, job, needs)]
        if any(not offer.pool.is_spot for offer in good):
            runtime = names.runtime(needs.framework, good[0].pool.fabric)
            return Placement(queue, runtime, tuple(offer.pool.name for offer in good))
    return None


def _satisfies(offer: FlavorOffer, job: JobSpec, needs: NeedsSpec) -> bool:
    pool = offer.pool
    if pool.accelerator is None or not meets(needs, pool.accelerator.model, pool.fabric):
        return False
    return offer.num_slots(job.accelerators_per_node) >= job.num_nodes


def meets(needs: NeedsSpec, accelerator: str, fabric: str) -> bool:
    """Whether nodes with these accelerators on this fabric are what a job needs, whatever their number."""
    has_fabric = fabric not in PLAIN_FABRICS if needs.fabric == RDMA else needs.fabric in {None, fabric}
    return (
        has_fabric
        and needs.framework in catalog.fabric(fabric).frameworks
        and needs.accelerator in {None, accelerator}
        and (needs.memory_gib is None or (_memory_gib(accelerator) or 0) >= needs.memory_gib)
    )


def _memory_gib(accelerator: str) -> float | None:
    try:
        return catalog.accelerator(accelerator).memory_gib
    except catalog.UnknownNameError:
        return None


def _frameworks(pool: NodePoolSpec) -> tuple[str, ...]:
    return catalog.fabric(pool.fabric).frameworks
