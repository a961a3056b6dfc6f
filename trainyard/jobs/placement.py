"""Places a job: its size by the first flavor of its team's queues with room for it, then all pools of that
queue that can run nodes of this size. The flavors' whole capacity counts, whatever is free now. A job that
fits nowhere is refused, and the error lists the flavors."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import catalog
from infra.common import names
from infra.errors import InputError, Problem, TrainyardError
from infra.stackfile.job import JobSpec, NeedsSpec
from infra.stackfile.offer import PoolOffer
from infra.stackfile.placement import meets
from infra.stackfile.share import Share
from trainyard.jobs.flavors import offer_of
from trainyard.jobs.key import LOCAL_QUEUES
from trainyard.jobs.pools import Pool, max_accelerators, pools_of

if TYPE_CHECKING:
    from trainyard.jobs.cluster import MemberCluster

DEFAULT_QUEUE = "default"
"""The local queue of jobs that name none; it submits to the team's first cluster queue."""


@dataclass(frozen=True)
class Size:
    """Requested size of a job, as far as the user has set it."""

    gpus: int | None = None
    """Accelerators of all nodes together."""
    nodes: int | None = None


@dataclass(frozen=True)
class JobPlacement:
    """Where a job's pods may run, and what they request there."""

    local_queue: str
    pools: tuple[str, ...] = ()
    """Pools that the job may use if its queue has others too; empty: all of them."""
    share: Share = field(default_factory=Share)
    """CPUs and memory of each accelerator, on any of its pools; default: those of an unknown machine type."""


@dataclass(frozen=True)
class Flavor:
    """A pool that jobs of a team can be admitted to."""

    local_queue: str
    queue: str
    """Name of the cluster queue."""
    pool: Pool
    max_accelerators: int
    """Maximum number of accelerators that the queue can have in this flavor, with what it can borrow."""
    offer: PoolOffer

    def __str__(self) -> str:
        offer = self.offer
        number = f"{self.max_accelerators} {offer.accelerator}, {offer.accelerators_per_node} on a node"
        return f"{self.pool.name} of {self.queue} ({number}, {offer.fabric}, {offer.capacity})"


@dataclass(frozen=True)
class PlacedJob:
    """A job with its runtime, queue and size filled in, and its placement."""

    job: JobSpec
    placement: JobPlacement
    flavors: tuple[Flavor, ...]
    """Flavors that the job may use, the preferred one first."""

    @property
    def processor(self) -> str:
        """The nodes' processor as `uname -m` has it; empty for machines that the catalogue has not."""
        found = catalog.find_machine(self.flavors[0].offer.machine) if self.flavors else None
        return {"amd64": "x86_64", "arm64": "aarch64"}[found.architecture] if found else ""


def flavors_of(cluster: "MemberCluster", namespace: str) -> list[Flavor]:
    """Return the flavors of a team's queues, those of its first queue first.

    Raises:
        InputError: there is no such team, as far as the user sees.
        TrainyardError: an earlier version deployed the stack, or the user may not see its queues.
    """
    known = cluster.cluster_queues()
    flavors = cluster.flavors()
    found = []
    for queue, local_queue in _local_queues(cluster, namespace).items():
        most = max_accelerators(queue, known)
        for pool in pools_of(queue, known):
            offer = offer_of(flavors.get(pool.name, {}))
            if offer is not None:
                found.append(Flavor(local_queue, queue, pool, most[pool.name], offer))
    if not found and namespace not in cluster.namespaces:
        raise InputError([_no_such_team(namespace, cluster.namespaces)])
    if not found:
        raise TrainyardError([_nothing_seen(namespace)])
    return found


def _local_queues(cluster: "MemberCluster", namespace: str) -> dict[str, str]:
    """Cluster queue → the team's local queue for it; one with the same name takes precedence."""
    local = {
        str(each["metadata"]["name"]): str(each["spec"]["clusterQueue"])
        for each in cluster.objects(LOCAL_QUEUES, namespace)
    }
    first = local.pop(DEFAULT_QUEUE, None)
    found = {first: DEFAULT_QUEUE} if first else {}
    for name, queue in local.items():
        if found.get(queue) in {None, DEFAULT_QUEUE}:
            found[queue] = name
    return found


def choose(job: JobSpec, size: Size, flavors: Sequence[Flavor]) -> PlacedJob:
    """Return the first queue with room for all of the job in one flavor, and the job with defaults filled in.

    Raises:
        InputError: no queue has room; the message lists the existing queues and flavors.
    """
    needs = job.needs or NeedsSpec(framework="mpi" if job.runtime.startswith("mpi-") else "torch")
    for queue in dict.fromkeys(each.queue for each in flavors):
        of_queue = [each for each in flavors if each.queue == queue]
        if job.queue not in {None, queue, of_queue[0].local_queue}:
            continue
        placed = next(filter(None, (_placed(job, size, needs, each) for each in of_queue)), None)
        if placed is None:
            continue
        # The other flavors get the same nodes and runtime, whatever would suit them.
        good = [each for each in of_queue if _is_good(each, placed, needs)]
        pools = tuple(each.pool.name for each in good) if len(good) < len(of_queue) else ()
        shares = [each.offer.share for each in good]
        share = Share(min(each.cpus for each in shares), min(each.memory_gib for each in shares))
        return PlacedJob(placed, JobPlacement(good[0].local_queue, pools, share), tuple(good))
    known = [name for each in flavors for name in (each.queue, each.local_queue)]
    if job.queue not in {None, *known}:
        raise InputError([_no_such_queue(str(job.queue), known)])
    raise InputError([_no_room(job, size, flavors)])


def _placed(job: JobSpec, size: Size, needs: NeedsSpec, flavor: Flavor) -> JobSpec | None:
    """Return the job with the size, runtime and queue that it has in a flavor; None where it does not fit."""
    found = _size(job, size, flavor.offer)
    if found is None:
        return None
    num_nodes, per_node = found
    runtime = job.runtime or names.runtime(needs.framework, flavor.offer.fabric)
    sized = {"num_nodes": num_nodes, "accelerators_per_node": per_node}
    placed = job.model_copy(update={**sized, "runtime": runtime, "queue": flavor.queue, "needs": None})
    return placed if _is_good(flavor, placed, needs) else None


def _size(job: JobSpec, size: Size, offer: PoolOffer) -> tuple[int, int] | None:
    """Return nodes, and accelerators of each, on nodes of a pool; None where that cannot be."""
    if size.gpus is None:
        fixed = {"accelerators_per_node"} & job.model_fields_set or size.nodes is None
        per_node = job.accelerators_per_node if fixed else offer.accelerators_per_node
        return size.nodes or job.num_nodes, per_node
    if size.nodes is not None:
        return (size.nodes, size.gpus // size.nodes) if size.gpus % size.nodes == 0 else None
    most = min(size.gpus, offer.accelerators_per_node)
    per_node = next(number for number in range(most, 0, -1) if size.gpus % number == 0)
    return size.gpus // per_node, per_node


def _is_good(flavor: Flavor, placed: JobSpec, needs: NeedsSpec) -> bool:
    offer, per_node = flavor.offer, placed.accelerators_per_node
    if per_node > offer.accelerators_per_node or placed.num_nodes * per_node > flavor.max_accelerators:
        return False
    has_runtime = placed.runtime.partition("-")[2] in {"", names.ANY_FABRIC, offer.fabric}
    return has_runtime and meets(needs, offer.accelerator, offer.fabric)


def _requests(job: JobSpec, size: Size) -> Iterator[str]:
    if size.gpus is not None:
        yield f"{size.gpus} GPUs" + (f" on {size.nodes} nodes" if size.nodes else "")
    else:
        nodes, of_each = size.nodes or job.num_nodes, job.accelerators_per_node
        yield f"{nodes} nodes with {of_each} GPUs each"
    for name in ("runtime", "queue"):
        if getattr(job, name):
            yield f"{name} {getattr(job, name)}"
    if job.needs is not None:
        needs: Mapping[str, object] = job.needs.model_dump(exclude_none=True)
        yield from (f"{key}: {value}" for key, value in needs.items())


def _no_room(job: JobSpec, size: Size, flavors: Sequence[Flavor]) -> Problem:
    return Problem(
        path="--gpus" if size.gpus is not None else "--nodes" if size.nodes is not None else "job",
        got=", ".join(_requests(job, size)),
        allowed="; ".join(map(str, flavors)),
        fix="ask for what one pool has; `trainyard job queue` shows what is free",
    )


def _no_such_queue(name: str, known: Sequence[str]) -> Problem:
    allowed = ", ".join(dict.fromkeys(known))
    return Problem(
        "queue", f"{name}, which is not your team's", allowed, "name one of these, or leave it out"
    )


def _no_such_team(namespace: str, known: Sequence[str]) -> Problem:
    teams = ", ".join(sorted(map(names.team_of, known)))
    got = f"{names.team_of(namespace)}: no team whose queues you may see"
    return Problem("team", got, f"a team of yours: {teams}", "name one of these: --team NAME")


def _nothing_seen(namespace: str) -> Problem:
    return Problem(
        path=f"queues of {namespace}",
        got="none whose pools have labels of their machine types",
        allowed="a team of a stack that this version has deployed",
        fix="ask your platform team to run `trainyard up` again, or for your team's role",
    )
