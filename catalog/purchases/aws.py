"""Purchases of an AWS stack: machines by type, FSx for Lustre or EFS, backups, S3, EKS, NAT gateways.

The nodes of a pool are divided evenly over its markets: machine types, each in one zone or in all zones.
"""

from collections import Counter
from collections.abc import Iterator, Sequence

from catalog.cost import MachinePurchase, Purchase, ServicePurchase, Stack, StoragePurchase, TargetPurchases
from catalog.purchases import pools

Market = tuple[str, tuple[str, ...]]
"""A machine type, and the zones that it is bought in."""


def markets(machines: Sequence[str], zones: Sequence[str], *, per_zone: bool) -> list[Market]:
    """Return the markets that a pool buys in: of each machine type one per zone, or one over all zones."""
    if len(zones) < 2 or not per_zone:
        return [(machine, tuple(zones)) for machine in machines]
    return [(machine, (zone,)) for machine in machines for zone in zones]


def shares(number: int, parts: int) -> list[int]:
    """Divide nodes evenly; the first parts get the remainder."""
    share, left_over = divmod(number, parts)
    return [share + (1 if index < left_over else 0) for index in range(parts)]


def default_snapshot_days(*, linked: bool) -> int:
    """A week of FSx's backups, where the files are nowhere else."""
    return 0 if linked else 7


def _purchases(stack: Stack) -> Iterator[Purchase]:
    for path, pool in pools.pools(stack):
        yield from _machines(stack, path, pool)
    yield from _storage(stack)
    yield from _services(stack)


def _machines(stack: Stack, path: str, pool: pools.Block) -> Iterator[MachinePurchase]:
    """A spot pool of several machine types buys some of each."""
    least, number = pools.num_nodes(pool)
    per_zone = pool.get("capacity") == "spot" or least < number
    zones = pool.get("zones") or pools.target(stack).get("zones") or ()
    types = (pool.get("machine") or "nothing", *(pool.get("alternatives") or ()))
    bought = markets(types, zones, per_zone=per_zone)
    nodes: Counter[str] = Counter()
    for (machine, _), share in zip(bought, shares(number, len(bought)), strict=True):
        nodes[machine] += share
    for machine, share in nodes.items():
        yield pools.machines(stack, path, pool, machine, share)


def _storage(stack: Stack) -> Iterator[StoragePurchase]:
    region = pools.price_region(stack)
    for key, filesystem in pools.new_filesystems(stack):
        path, is_efs = f"{key}.capacity", filesystem.get("kind") == "efs"
        kind = "efs-standard" if is_efs else f"fsx-lustre-{filesystem.get('throughput')}"
        gib = None if is_efs else pools.gibibytes(filesystem.get("capacity"))
        yield StoragePurchase(name="filesystem", cloud="aws", region=region, path=path, kind=kind, gib=gib)
        if _snapshot_days(stack, filesystem):
            kind = "efs-backup" if is_efs else "fsx-lustre-backup"
            yield StoragePurchase(name="snapshots", cloud="aws", region=region, kind=kind, gib=None)
    yield StoragePurchase(name="object store", cloud="aws", region=region, kind="s3-standard", gib=None)


def _snapshot_days(stack: Stack, filesystem: pools.Block) -> int:
    """Days that a daily snapshot is retained apart from the filesystem; what changes daily is charged."""
    days: int | None = ((stack.get("storage") or {}).get("checkpoints") or {}).get("snapshot_days")
    if days is not None:
        return days
    return default_snapshot_days(linked=bool(filesystem.get("kind") == "efs" or filesystem.get("link")))


def _services(stack: Stack) -> Iterator[ServicePurchase]:
    """The control plane, and the way out of a network that the stack makes."""
    region, nat = pools.price_region(stack), pools.new_network(stack).get("nat")
    if pools.makes_cluster(stack):
        yield ServicePurchase(
            name="control plane", cloud="aws", region=region, path="target", kind="eks-cluster"
        )
    if nat in ("one", "per-zone"):
        number = 1 if nat == "one" else len(pools.target(stack).get("zones") or ())
        path = "target.network.nat"
        yield ServicePurchase(
            name="NAT", cloud="aws", region=region, path=path, kind="nat-gateway", number=number
        )


COST = TargetPurchases(_purchases)
