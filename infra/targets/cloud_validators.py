"""Checks that the validators of several clouds share: machines, purchases, fabrics, zones, filesystems,
existing clusters, tags, team groups.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from ipaddress import IPv4Network
from itertools import combinations
from typing import Protocol

import catalog
from catalog import Machine, PurchaseKind
from infra.stackfile.amd import AmdSpec
from infra.stackfile.finding import Finding, unknown
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import QueueSpec, TeamSpec
from infra.stackfile.source import KeyPath
from infra.stackfile.storage import StorageSpec
from infra.stackfile.target import CloudSpec, TargetSpec, supported_minors

Pools = tuple[NodePoolSpec, ...]
Queues = tuple[QueueSpec, ...]
OWN_TAGS = 10
"""Maximum number of tags that Trainyard itself puts on a resource, with a reserve."""


class InZones(Protocol):
    """A target with nodes in zones."""

    @property
    def zones(self) -> tuple[str, ...]: ...


class Access(Protocol):
    """Networks with access to the API server."""

    @property
    def public_cidrs(self) -> tuple[IPv4Network, ...]: ...


class WithAccess(Protocol):
    """A target whose API server may be public."""

    @property
    def access(self) -> Access: ...


class MayExist(Protocol):
    """A network or filesystem: the stack's own, or one that exists."""

    @property
    def existing(self) -> object | None: ...


class ExistingCluster(Protocol):
    """A cluster of others."""

    @property
    def name(self) -> str: ...
    @property
    def version(self) -> str: ...


class OnExisting(Protocol):
    """A target whose network, filesystem and cluster may exist."""

    @property
    def network(self) -> MayExist: ...
    @property
    def filesystem(self) -> MayExist: ...
    @property
    def existing_cluster(self) -> ExistingCluster | None: ...
    @property
    def kubernetes_version(self) -> str: ...
    @property
    def kubernetes_minor(self) -> str: ...


class WithAmd(Protocol):
    """A target whose pools may have AMD GPUs."""

    @property
    def amd(self) -> AmdSpec | None: ...


class WithNetwork(Protocol):
    """A target that takes ranges of addresses."""

    @property
    def network(self) -> Iterable[tuple[str, object]]: ...


def with_machines(cloud: str, pools: tuple[NodePoolSpec, ...]) -> Iterator[tuple[int, NodePoolSpec, Machine]]:
    """The pools whose machine is one of the cloud's that the catalogue knows, or the stack declares."""
    for index, pool in enumerate(pools):
        machine = pool.find_machine(pool.machine)
        if machine and machine.cloud == cloud:
            yield index, pool, machine


def machines_exist(
    target: CloudSpec, pools: tuple[NodePoolSpec, ...], *, what: str, listed_by: str
) -> Iterator[Finding]:
    """Every pool names its machine type, and every machine is in the catalogue or in the stack file."""
    known = [*target.machines, *(machine.name for machine in catalog.machines(cloud=target.kind))]
    for index, pool in enumerate(pools):
        if pool.machine is None:
            fix = f"add `machine:`; {listed_by} lists them"
            yield ("pools", index), "no machine", f"{what} on every pool", fix
        elif pool.machine not in known:
            yield unknown_machine(("pools", index, "machine"), pool.machine, known, what)


def unknown_machine(path: KeyPath, got: str, known: Sequence[str], what: str) -> Finding:
    """Return the finding for a machine type that is unknown, with the nearest one."""
    _, shown, allowed, fix = unknown(path, got, known, f"{what} in the catalogue")
    near = fix.removesuffix(", or add it")
    facts = f"{{{got}: {{vcpus: …, memory: …}}}}"
    declare = f"else declare it with its facts: `target.machines: {facts}` (docs/catalog.md)"
    return path, shown, allowed, f"{near}{' ' if near.endswith('?') else ', '}{declare}"


def declared_machines_fit_the_cloud(target: CloudSpec) -> Iterator[Finding]:
    """A fabric class belongs to the machines of a cloud."""
    sold = {machine.fabric for machine in catalog.machines(cloud=target.kind)}
    classes = [each.name for each in catalog.fabrics() if sold & {each.name, each.variant_of}]
    for name, machine in target.machines.items():
        path: KeyPath = ("target", "machines", name)
        if machine.fabric not in classes:
            yield unknown((*path, "fabric"), machine.fabric, classes, f"a fabric class of {target.kind}")


HOW_TO_BUY: Mapping[PurchaseKind, str] = {
    "on-demand": "`capacity: on-demand`",
    "spot": "`capacity: spot`",
    "flex-start": "`provisioning: all-at-once` (or node-by-node) with `capacity: on-demand`",
    "reservation": "`capacity: reserved` with `reservation: {id: …}`",
    "capacity-block": "`capacity: reserved` with `reservation: {id: …, kind: block}`",
}


def purchase_of(pool: NodePoolSpec) -> PurchaseKind:
    """Return how a pool's machines are bought."""
    if pool.is_spot:
        return "spot"
    if pool.reservation is not None:
        return "capacity-block" if pool.reservation.kind == "block" else "reservation"
    if pool.provisioning:
        return "flex-start"
    return "reservation" if pool.capacity == "reserved" else "on-demand"


def machine_is_sold(index: int, pool: NodePoolSpec, machine: Machine, region: str) -> Iterator[Finding]:
    """A machine must be sold in the region and the pool's purchase type; unknown offers are accepted."""
    path: KeyPath = ("pools", index, "machine")
    regions = [known.name for known in catalog.regions(machine.cloud)]
    if region in regions and machine.offered_in(region) is False:
        allowed = f"regions that offer it: {', '.join(machine.regions)}"
        yield path, f"{machine.name} in {region}", allowed, _another_machine(machine, region)
    purchase = purchase_of(pool)
    ways = machine.ways if machine.offered_in(region) is False else machine.ways_in(region)
    if machine.ways and purchase not in ways:
        where = f" in {region}" if purchase in machine.ways else ""
        fix = f"write {', or '.join(HOW_TO_BUY[way] for way in ways)}; or choose another machine"
        yield path, f"{machine.name} as {purchase}{where}", " or ".join(ways), fix


def _another_machine(machine: Machine, region: str) -> str:
    """Return the next step: another machine of the kind, or the way to declare a new offer."""
    there = catalog.machines(cloud=machine.cloud, region=region)
    others = [other.name for other in there if other.accelerator == machine.accelerator]
    kind = f"with {machine.accelerator}" if machine.accelerator else "without accelerators"
    choose = f"{kind} there: {', '.join(others)}" if others else "choose another machine or region"
    return f"{choose}; if {region} has it by now, declare it: `target.machines` (docs/catalog.md)"


def the_api_server_is_not_public(target: WithAccess) -> Iterator[Finding]:
    """0.0.0.0/0 is no restriction."""
    for index, network in enumerate(target.access.public_cidrs):
        if network.prefixlen < 8:
            path = ("target", "access", "public_cidrs", index)
            fix = "name the networks of your offices or VPN, or leave it out: the endpoint is private then"
            yield path, str(network), "networks of /8 or narrower", fix


def fabrics_over_zones(
    target: InZones, pools: tuple[NodePoolSpec, ...]
) -> Iterator[tuple[int, NodePoolSpec, str]]:
    """Yield each pool with a fabric in several zones: its ranks would use TCP, or not connect at all."""
    for index, pool in enumerate(pools):
        zones = pool.zones or target.zones
        if pool.fabric != "tcp" and len(zones) > 1:
            yield index, pool, ", ".join(zones)


def reservation_fits_the_capacity(
    index: int, pool: NodePoolSpec, *, what: str, add: str, called: str = "a reservation"
) -> Iterator[Finding]:
    """Reserved pools have a reservation, and no other pools do."""
    path: KeyPath = ("pools", index, "reservation")
    if pool.capacity == "reserved" and pool.reservation is None:
        yield path, "nothing", f"the {what} that a reserved pool draws on", f"{add}, or buy on demand"
    if pool.capacity != "reserved" and pool.reservation is not None:
        got = f"{called} on a {pool.label} pool"
        fix = f"write `capacity: reserved`, or remove the reservation and keep {pool.capacity}"
        yield path, got, "reservations on reserved pools only", fix


def filesystem_zone_is_the_stacks(target: InZones, zone: str | None) -> Iterator[Finding]:
    """Reads from another zone cost money and time."""
    if zone is not None and zone not in target.zones:
        yield unknown(("target", "filesystem", "zone"), zone, target.zones, "a zone of the stack")


def tags_are_within_limit(key: str, tags: Mapping[str, str], *, most: int, of: str) -> Iterator[Finding]:
    """A resource takes a limited number of tags, some of which the stack itself sets."""
    room = most - OWN_TAGS
    if len(tags) > room:
        allowed = f"at most {room}: {of} takes {most} for each resource, and the stack sets some itself"
        yield ("target", key), f"{len(tags)} {key}", allowed, f"remove {len(tags) - room}"


def an_existing_filesystem_is_in_an_existing_network(target: OnExisting) -> Iterator[Finding]:
    """A filesystem has its addresses in one VPC, and a VPC that the stack makes is empty."""
    if target.filesystem.existing is not None and target.network.existing is None:
        path: KeyPath = ("target", "filesystem", "existing")
        fix = "name the filesystem's VPC in `network.existing`, or omit `existing`: the stack creates one"
        yield path, "a filesystem of another VPC", "with `network.existing`: the VPC that it is in", fix


EXISTING_CLUSTER: KeyPath = ("target", "existing_cluster")


def cluster_is_in_an_existing_network(target: OnExisting, fix: str) -> Iterator[Finding]:
    """The cluster's nodes are in its VPC, and a VPC that the stack makes is empty."""
    if target.existing_cluster and target.network.existing is None:
        allowed = "with `network.existing`: the VPC that it is in"
        yield EXISTING_CLUSTER, "a cluster of another VPC", allowed, fix


def cluster_has_a_supported_version(target: OnExisting, command: str) -> Iterator[Finding]:
    """Charts and node images depend on the version; `command` upgrades `{name}` to `{minor}`."""
    cluster, minors = target.existing_cluster, supported_minors()
    if cluster is None:
        return
    if cluster.version not in minors:
        fix = f"`{command.format(name=cluster.name, minor=minors[-1])}`"
        allowed = f"{' or '.join(minors)}: what the pinned operators support"
        yield (*EXISTING_CLUSTER, "version"), cluster.version, allowed, fix
    elif cluster.version != target.kubernetes_minor:
        path: KeyPath = ("target", "kubernetes_version")
        allowed = f"{cluster.version}: what the cluster has"
        yield path, target.kubernetes_version, allowed, "remove the key: the cluster determines it"


def access_is_the_clusters_owners(access: Mapping[str, object]) -> Iterator[Finding]:
    """The stack grants its teams access, but changes no existing cluster: `access` by its keys."""
    for key, asked in access.items():
        if asked:
            path: KeyPath = ("target", "access", key)
            fix = "remove the key: the cluster's owner has set it"
            yield path, f"{key} with `existing_cluster`", "nothing: the cluster's owner sets it", fix


def zones_of_pools_are_the_stacks(target: InZones, pools: tuple[NodePoolSpec, ...]) -> Iterator[Finding]:
    """The cluster's nodes are in the stack's zones: only these have subnets."""
    for index, pool in enumerate(pools):
        for position, zone in enumerate(pool.zones or ()):
            if zone not in target.zones:
                path = ("pools", index, "zones", position)
                yield unknown(path, zone, target.zones, "a zone of the stack")


def flavors_that_come_one_by_one(pools: Pools, queues: Queues) -> Iterator[tuple[KeyPath, str]]:
    """Yield each flavor whose nodes are added one by one: Kueue counts only nodes that exist."""
    flexible = {pool.name for pool in pools if pool.provisioning == "node-by-node"}
    for index, queue in enumerate(queues):
        for position, flavor in enumerate(queue.flavors):
            if flavor.pool in flexible:
                path = ("queues", index, "flavors", position, "pool")
                yield path, f"{flavor.pool!r}, whose nodes are provisioned one by one"


def queues_see_the_nodes_that_they_count(
    target: TargetSpec, pools: Pools, queues: Queues
) -> Iterator[Finding]:
    """Kueue counts nodes that exist, or asks for all at once; it cannot wait for them one by one."""
    for path, got in flavors_that_come_one_by_one(pools, queues):
        allowed = "pools of a fixed size, or with `provisioning: all-at-once`"
        fix = "write `provisioning: all-at-once` on the pool, or use it only for pods outside of the queue"
        yield path, got, allowed, fix


def groups_are_spelled(
    teams: tuple[TeamSpec, ...], pattern: str, allowed: str, fix: str
) -> Iterator[Finding]:
    """Kubernetes accepts a group without members, which grants nothing."""
    for index, team in enumerate(teams):
        for role in ("members", "viewers"):
            for position, group in enumerate(getattr(team, role)):
                if not re.fullmatch(pattern, group):
                    yield ("teams", index, role, position), repr(group), allowed, fix


def amd_has_its_images(target: WithAmd, pools: Pools) -> Iterator[Finding]:
    """ROCm jobs need a ROCm image, and AMD's operator pinned images."""
    path: KeyPath = ("target", "amd")
    on_amd = [pool.name for pool in pools if vendor(pool) == "amd"]
    if on_amd and target.amd is None:
        fix = "add `amd:` with the images, by digest"
        yield path, f"nothing, with AMD pools: {', '.join(on_amd)}", "the images for ROCm", fix
    if target.amd is not None and not on_amd:
        yield path, "images that no pool uses", "a pool with AMD GPUs", "remove the section"


def vendor(pool: NodePoolSpec) -> str:
    """Vendor of the pool's accelerators; empty for none, or for one that is unknown."""
    known = {each.name: each.vendor for each in catalog.accelerators()}
    return known.get(pool.accelerator.model, "") if pool.accelerator else ""


def claims_fit(capacity_gib: int, storage: StorageSpec, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """Claims are promised to each team, and the filesystem has a fixed size."""
    total = storage.checkpoints.size_gib * len(teams)
    if total > capacity_gib:
        got = f"{storage.checkpoints.size_gib}Gi for each of {len(teams)} teams: {total}Gi"
        allowed = f"{capacity_gib}Gi in total: the filesystem's capacity"
        fix = "lower the claims, or buy a larger filesystem"
        yield ("storage", "checkpoints", "size"), got, allowed, fix


def nearest_steps(size: int, step: int, unit: str = "") -> str:
    """Name the sizes that are sold on either side of one that is not: `2400Gi or 4800Gi`."""
    upper = next_step(size, step)
    return f"{upper - step}{unit} or {upper}{unit}" if upper > step else f"{upper}{unit}"


def next_step(size: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-size // step) * step


def pools_agree_with_their_machines(target: TargetSpec, pools: Pools) -> Iterator[Finding]:
    """Accelerator and fabric may be omitted; if set, they must be the machine's."""
    for index, pool, machine in with_machines(target.kind, pools):
        yield from _fabric_is_one_of_the_machines(index, pool, machine)
        yield from _accelerator_is_the_machines(index, pool, machine)


def _accelerator_is_the_machines(index: int, pool: NodePoolSpec, machine: Machine) -> Iterator[Finding]:
    """An accelerator may be omitted; if set, it must be the machine's."""
    found = (pool.accelerator.model, pool.accelerator.count) if pool.accelerator else (None, 0)
    if found != (machine.accelerator, machine.num_accelerators):
        allowed = f"{machine.num_accelerators} × {machine.accelerator} ({machine.name})"
        fix = "leave `accelerator` out: the machine type determines it"
        yield ("pools", index, "accelerator"), f"{found[1]} × {found[0]}", allowed, fix


def _fabric_is_one_of_the_machines(index: int, pool: NodePoolSpec, machine: Machine) -> Iterator[Finding]:
    """A fabric may be omitted; if set, it must be among the machine's."""
    classes = [each.name for each in catalog.fabrics() if each.variant_of == machine.fabric != "tcp"]
    if pool.fabric not in (machine.fabric, *classes):
        allowed = f"{' or '.join((machine.fabric, *classes))} ({machine.name})"
        fix = "leave `fabric` out: the machine type determines it"
        yield ("pools", index, "fabric"), repr(pool.fabric), allowed, fix


def the_object_store_has_no_size(target: TargetSpec, storage: StorageSpec) -> Iterator[Finding]:
    """An object store exists already, or grows with its content."""
    if storage.object_store.size_gib is not None:
        path = ("storage", "object_store", "size")
        yield path, str(storage.object_store.size_gib), f"nothing (kind: {target.kind})", "remove the key"


def networks_are_apart(target: WithNetwork) -> Iterator[Finding]:
    """Overlapping ranges would send packets to the wrong side."""
    ranges = {name: each for name, each in target.network if isinstance(each, IPv4Network)}
    for (first, one), (second, other) in combinations(ranges.items(), 2):
        if one.overlaps(other):
            got, path = f"{other}, which overlaps {first} {one}", ("target", "network", second)
            yield path, got, "three ranges that do not overlap", "move one of the two ranges"


def keys_of_clouds(target: TargetSpec, pools: Pools, keys: Sequence[str], fix: str) -> Iterator[Finding]:
    """Report keys about buying nodes from a cloud, of pools whose nodes are not bought."""
    for index, pool in enumerate(pools):
        for key in keys:
            if getattr(pool, key) is not None:
                path: KeyPath = ("pools", index, NodePoolSpec.key_of(key))
                yield path, "a cloud's property", f"nothing (kind: {target.kind})", fix
