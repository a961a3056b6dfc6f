"""Checks between a stack file's sections, for every target: features, pools, queues, teams, storage,
operators.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Protocol

from catalog import fabric_lint
from infra.common.target_registry import target_of
from infra.stackfile.finding import Checks, Finding, unknown
from infra.stackfile.grace import runtime_grace_seconds, runtime_notices
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.operators import OperatorsSpec
from infra.stackfile.queue import FlavorSpec, QueueSpec, TeamSpec
from infra.stackfile.source import KeyPath
from infra.stackfile.stack import runtime_names
from infra.stackfile.storage import StorageSpec
from infra.stackfile.target import TargetSpec

Pools = tuple[NodePoolSpec, ...]
Queues = tuple[QueueSpec, ...]
Teams = tuple[TeamSpec, ...]


class _HasName(Protocol):
    @property
    def name(self) -> str: ...


def names_are_unique(pools: Pools, queues: Queues, teams: Teams) -> Iterator[Finding]:
    """Names become names of nodes, flavors, queues and namespaces."""
    groups: Mapping[str, Sequence[_HasName]] = {"pools": pools, "queues": queues, "teams": teams}
    for section, entries in groups.items():
        counts = Counter(entry.name for entry in entries)
        for index, entry in enumerate(entries):
            if counts[entry.name] > 1:
                yield (
                    (section, index, "name"),
                    repr(entry.name),
                    f"a name that is unique among the {section}",
                    "rename or remove one of them",
                )


def pools_have_what_the_target_offers(target: TargetSpec, pools: Pools) -> Iterator[Finding]:
    """A feature that the target has not declared would be ignored silently."""
    yield from target_of(target.kind).undeclared(pools)


def one_system_pool(pools: Pools) -> Iterator[Finding]:
    """The operators must run where no spot loss takes them away."""
    num_system = sum(pool.is_system for pool in pools)
    if num_system > 1:
        fix = "keep one system pool, with more nodes"
        yield ("pools",), f"{num_system} system pools", "one pool with role: system", fix
    for index, pool in enumerate(pools):
        if pool.is_system and pool.capacity != "on-demand":
            allowed = "on-demand: the operators' nodes are permanent"
            yield ("pools", index, "capacity"), repr(pool.capacity), allowed, "remove `capacity:`"


def job_pools_have_accelerators(pools: Pools) -> Iterator[Finding]:
    """A pool for jobs without accelerators could take no job; a system pool with them would idle them.

    A cloud's pool of nodes without any is for work beside the jobs, such as preprocessing.
    """
    for index, pool in enumerate(pools):
        if pool.is_system and pool.accelerator:
            fix = "move the accelerators to another pool"
            yield ("pools", index, "accelerator"), repr(pool.accelerator.model), "none on a system pool", fix
        if not pool.is_system and not pool.accelerator and not pool.machine:
            allowed = f"accelerator: {{model: ..., count: ...}} on a {pool.label} pool"
            yield ("pools", index), "no accelerator", allowed, "add `accelerator:`, or remove the pool"


def snapshots_are_taken_where_they_can_be(target: TargetSpec, storage: StorageSpec) -> Iterator[Finding]:
    """`snapshot_days` is refused where nothing takes snapshots: it would look like protection."""
    days = storage.checkpoints.snapshot_days
    if not days:
        return
    path: KeyPath = ("storage", "checkpoints", "snapshot_days")
    filesystem = getattr(target, "filesystem", None)
    if getattr(filesystem, "existing", None) is not None:
        fix = "omit the key, and ask the filesystem's owner"
        allowed = "nothing: the filesystem's owner takes snapshots"
        yield path, f"{days}, of an existing filesystem", allowed, fix
    elif reason := (filesystem or target).WHY_NO_SNAPSHOTS:
        kind = filesystem.kind if filesystem else target.kind
        yield path, f"{days}, of {kind}", "0, or nothing: no snapshots are taken", reason


def flavors_name_job_pools(pools: Pools, queues: Queues) -> Iterator[Finding]:
    """Each flavor names a pool that takes jobs."""
    known = {
        pool.name: pool
        for pool in pools
        if not pool.is_system and (pool.accelerator or pool.machine is None or not _has_known_machine(pool))
    }
    for path, flavor in _flavors(queues):
        if flavor.pool not in known:
            yield unknown((*path, "pool"), flavor.pool, known, "a pool that runs jobs")


def quotas_fit_the_pools(pools: Pools, queues: Queues) -> Iterator[Finding]:
    """Quotas over capacity would admit jobs that can never run."""
    capacity = {pool.name: pool.num_accelerators for pool in pools if _has_known_machine(pool)}
    total: Counter[str] = Counter()
    for path, flavor in _flavors(queues):
        total[flavor.pool] += flavor.quota
        have = capacity.get(flavor.pool, total[flavor.pool])
        if total[flavor.pool] > have:
            got = f"{flavor.quota} ({total[flavor.pool]} over all queues)"
            allowed = f"{have} over all queues: the accelerators of pool {flavor.pool!r}"
            yield (*path, "quota"), got, allowed, "lower the quota, or add nodes to the pool"


def a_queue_names_a_pool_once(queues: Queues) -> Iterator[Finding]:
    """The order of flavors is the order of preference: twice has no meaning."""
    for index, queue in enumerate(queues):
        seen: set[str] = set()
        for position, flavor in enumerate(queue.flavors):
            if flavor.pool in seen:
                path = ("queues", index, "flavors", position, "pool")
                yield path, repr(flavor.pool), "each pool once in a queue", "remove one of the two"
            seen.add(flavor.pool)


def spot_has_a_fallback(pools: Pools, queues: Queues) -> Iterator[Finding]:
    """A queue with spot pools only admits no job while the spot market is empty."""
    spot = {pool.name for pool in pools if pool.is_spot}
    for index, queue in enumerate(queues):
        if {flavor.pool for flavor in queue.flavors} <= spot:
            allowed = "at least one flavor of an on-demand or reserved pool"
            fix = "add such a pool after the spot pools; one that begins empty costs nothing (docs/pools.md)"
            yield ("queues", index, "flavors"), "only spot pools", allowed, fix


def spot_is_preferred(pools: Pools, queues: Queues) -> Iterator[Finding]:
    """A spot flavor behind an on-demand one of the same queue is never used before it is full."""
    spot = {pool.name for pool in pools if pool.is_spot}
    for index, queue in enumerate(queues):
        order = [flavor.pool in spot for flavor in queue.flavors]
        if order != sorted(order, reverse=True):
            got = ", ".join(flavor.pool for flavor in queue.flavors)
            fix = "list the spot pools first"
            yield ("queues", index, "flavors"), got, "spot pools before the others", fix


def queues_keep_to_a_fabric(pools: Pools, queues: Queues) -> Iterator[Finding]:
    """The fabric lint: a job falls back to other pools with its runtime."""
    known = [pool for pool in pools if _has_known_machine(pool)]
    if len(known) < len(pools) or len({pool.name for pool in pools}) < len(pools):
        return
    sections = {"pools": pools, "queues": queues}
    spec: dict[str, Any] = {
        name: [entry.model_dump(mode="json") for entry in section] for name, section in sections.items()
    }
    for fault in fabric_lint.stack(spec):
        # The target's validator of zones reports these, and names the fabric that ends at the zone.
        if fault.path[-1] != "zones":
            yield fault.path, fault.got, fault.allowed, fault.fix


def teams_have_a_queue(queues: Queues, teams: Teams) -> Iterator[Finding]:
    """A team's local queue points at a cluster queue."""
    known = [queue.name for queue in queues]
    for index, team in enumerate(teams):
        if team.queue not in known:
            yield unknown(("teams", index, "queue"), team.queue, known, "a queue of this stack")
        for position, name in enumerate(team.more_queues):
            path = ("teams", index, "more_queues", position)
            if name not in known:
                yield unknown(path, name, known, "a queue of this stack")
            elif name in team.queues[: position + 1]:
                yield path, repr(name), "each queue once", "remove one of the two"


def operators_fit_together(operators: OperatorsSpec) -> Iterator[Finding]:
    """Trainer creates JobSets."""
    if operators.trainer != "off" and operators.jobset == "off":
        yield ("operators", "jobset"), "'off'", "install or existing: Trainer creates JobSets", "install it"


def kueue_timeouts_need_an_installed_kueue(operators: OperatorsSpec) -> Iterator[Finding]:
    """Timeouts have no effect without a Kueue that the stack installs."""
    for field in ("pods_ready_minutes", "pods_recovery_minutes"):
        minutes = getattr(operators, field)
        if minutes and operators.kueue != "install":
            allowed = f"nothing, with kueue: {operators.kueue}"
            fix = "leave it out, and set waitForPodsReady in the configuration of the existing Kueue"
            yield ("operators", operators.key_of(field)), f"{minutes}m", allowed, fix


def runtime_grace_fits_its_pools(
    target: TargetSpec, pools: Pools, operators: OperatorsSpec, grace_seconds: Mapping[str, int]
) -> Iterator[Finding]:
    """Spot nodes end after their preemption notice: the limit of a runtime with spot pools only."""
    runtimes = runtime_names(pools, operators)
    for runtime, seconds in grace_seconds.items():
        path: KeyPath = ("grace", runtime)
        if runtime not in runtimes:
            yield unknown(path, runtime, runtimes, "a runtime of this stack")
            continue
        notices = runtime_notices(target.kind, pools, runtime)
        longest = runtime_grace_seconds(runtime, notices, {})
        if None not in notices and seconds > longest:
            allowed = f"{longest}s at most: the notice of {target.kind}'s spot nodes, its only ones"
            yield path, f"{seconds}s", allowed, "lower it, or add a pool of this fabric that is not spot"


def unchecked_runtimes_are_of_the_stack(
    pools: Pools, operators: OperatorsSpec, unchecked_runtimes: Sequence[str]
) -> Iterator[Finding]:
    """A misspelt name would leave the check on, without a message."""
    runtimes = runtime_names(pools, operators)
    for index, runtime in enumerate(unchecked_runtimes):
        if runtime not in runtimes:
            yield unknown(("unchecked_runtimes", index), runtime, runtimes, "a runtime of this stack")


def store_keys_belong_to_teams(storage: StorageSpec, teams: Teams) -> Iterator[Finding]:
    """`key_generations` is only for a store that the stack serves, and for its teams."""
    path: KeyPath = ("storage", "object_store", "key_generations")
    known = [team.name for team in teams]
    for team in storage.object_store.key_generations:
        if storage.object_store.size_gib is None:
            fix = "remove it; teams reach the store by identities, or by existing Secrets"
            yield (*path, team), repr(team), "nothing: the stack does not run this object store", fix
        elif team not in known:
            yield unknown((*path, team), team, known, "a team of this stack")


CHECKS = Checks(__name__)


def _has_known_machine(pool: NodePoolSpec) -> bool:
    """Whether the machine type is known; another check reports an unknown type, once."""
    return pool.machine is None or pool.find_machine(pool.machine) is not None


def _flavors(queues: Queues) -> Iterator[tuple[KeyPath, FlavorSpec]]:
    for index, queue in enumerate(queues):
        for position, flavor in enumerate(queue.flavors):
            yield ("queues", index, "flavors", position), flavor
