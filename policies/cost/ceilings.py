"""Policy: the plan's cost stays under the configured hourly and monthly ceilings of each pool and of the
stack. Where a ceiling is configured, a part of the plan without a known price is a violation.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fnmatch import fnmatchcase

import catalog
from catalog import HOURS_PER_MONTH, MachinePurchase, MissingPrice, Purchase, ServicePurchase, StoragePurchase
from catalog.cost import usd_per_hour
from catalog.purchases import cost_of
from policies.policy import Policy, Resource, Violation, parameter
from policies.pools import TYPES, pool_of
from policies.region import cloud_of, effective_region
from policies.unknowns import KnownValues, PropertyBlock

COMPONENTS = "trainyard:infra:*Cluster"
"""Type pattern of components whose input is a whole stack."""
TIB = 1024


@dataclass(frozen=True)
class Sized:
    """A filesystem with a bought size: the catalogue's kind, and the properties with speed and size."""

    kind: str
    speed: str
    """Property with the speed, tier or level; only the part of its value after the last dash counts."""
    size: str
    gib: Decimal = Decimal(1)
    """Size in GiB of one unit of the property `size`."""

    def purchase(self, props: PropertyBlock, cloud: str, region: str) -> StoragePurchase:
        """Return the purchase of a resource."""
        speed = str(props.get(self.speed, "unspecified")).lower().rpartition("-")[2]
        # The size of a Managed Lustre instance is a string.
        gib = Decimal(str(props.get(self.size, 0))) * self.gib
        kind = f"{self.kind}-{speed}"
        path = props.at(self.size)
        return StoragePurchase(name="filesystem", cloud=cloud, region=region, path=path, kind=kind, gib=gib)


_NETAPP = Sized("netapp", "serviceLevel", "size", gib=1 / Decimal(1024**3))
FILESYSTEMS = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": Sized(
        "fsx-lustre", "perUnitStorageThroughput", "storageCapacity"
    ),
    "gcp:lustre/instance:Instance": Sized("managed-lustre", "perUnitStorageThroughput", "capacityGib"),
    "gcp:filestore/instance:Instance": Sized("filestore", "tier", "fileShares.capacityGb"),
    "azure-native:storagecache:AmlFilesystem": Sized(
        "azure-lustre", "sku.name", "storageCapacityTiB", gib=Decimal(TIB)
    ),
    "azure-native:netapp:CapacityPool": _NETAPP,
    "azure-native:netapp:Pool": _NETAPP,
}
"""Type → how the filesystem is priced; NetApp Files charges the pool, whatever its volumes use."""
SERVICES = {
    "aws:eks/cluster:Cluster": "eks-cluster",
    "aws:ec2/natGateway:NatGateway": "nat-gateway",
    "gcp:container/cluster:Cluster": "gke-cluster",
}
"""Type → kind of service. Cloud NAT is missing: its price depends on the VMs behind it."""
CLOUDS = {"aws": "aws", "gcp": "gcp", "azure-native": "azure"}
"""Package of a resource → name of its cloud in the catalogue."""
CEILINGS = (("hourly_usd", 1, "h"), ("monthly_usd", HOURS_PER_MONTH, "month"))


@dataclass(frozen=True)
class Item:
    """A priced part of the plan: a pool's nodes, a filesystem or a service."""

    path: str
    """Path of the item in the plan."""
    purchases: tuple[Purchase, ...]
    """Possible purchases of the item; a pool has one for each machine type, of which the dearest counts."""
    number: int = 1
    """Number of nodes of a pool."""

    @property
    def is_pool(self) -> bool:
        """Whether it is nodes."""
        return any(isinstance(each, MachinePurchase) for each in self.purchases)

    def usd_per_hour(self, rates: Iterable[Decimal]) -> Decimal:
        """Cost for an hour, at the price of one of each purchase."""
        if self.is_pool:
            return max(rates) * self.number
        costs = (usd_per_hour(each, rate) for each, rate in zip(self.purchases, rates, strict=True))
        return sum((cost for cost in costs if cost is not None), Decimal(0))


def evaluate(resource: Resource) -> Iterator[Violation]:
    """The priced plan against the ceilings: of each pool, and of the stack.

    A cluster's component carries its whole spec, so its total is evaluated before anything of it exists.
    Clusters, and what other programs declare of pools, filesystems, control planes and NAT, are added up in
    the order in which they are declared: the one that passes the ceiling is refused before it is made.
    """
    limits = (resource.parameters.get(f"{scope}{name}") for scope in ("", "pool_") for name, _, _ in CEILINGS)
    if all(limit is None for limit in limits):
        return
    whole = fnmatchcase(resource.type, COMPONENTS)
    items = list(_of_spec(resource) if whole else _of_resource(resource))
    costs = []
    for item in items:
        rates = [_rate(purchase, resource) for purchase in item.purchases]
        unpriced = [each for each, rate in zip(item.purchases, rates, strict=True) if rate is None]
        if unpriced:
            yield _unpriced(item, unpriced[0])
            continue
        cost = item.usd_per_hour([rate for rate in rates if rate is not None]) if rates else Decimal(0)
        costs.append(cost)
        if item.is_pool:
            yield from _ceilings(resource, "pool_", item.path, cost, f"at {item.number} nodes")
    if whole or not _is_counted(resource):
        total = resource.stack.costs
        total[resource.urn or resource.name] = sum(costs, Decimal(0))
        where = "stack.pools" if whole else items[0].path if items else "type"
        yield from _ceilings(
            resource, "", where, sum(total.values(), Decimal(0)), _counted(items, has_more=len(total) > 1)
        )


def _is_counted(resource: Resource) -> bool:
    """Whether a resource belongs to a cluster's component whose stack was added up in this run.

    The types of its parents are in its URN; all resource names are ignored.
    """
    parents = _types(resource.urn).rpartition("$")[0]
    counted = (_types(urn) for urn in resource.stack.costs)
    return any(
        f"{parents}$".startswith(f"{types}$")
        for types in counted
        if fnmatchcase(types.rpartition("$")[2], COMPONENTS)
    )


def _types(urn: str) -> str:
    """The part of a URN with the types: the parents', outermost first, then the resource's, joined by `$`."""
    parts = urn.split("::")
    return parts[2] if len(parts) > 3 else ""


def _rate(purchase: Purchase, resource: Resource) -> Decimal | None:
    """The price of one at most: one's own, else the catalogue's; None where there is none."""
    if own := _own_price(purchase, resource.parameters):
        return Decimal(str(own))
    found = catalog.highest_price_of(purchase, resource.stack.today)
    return None if isinstance(found, MissingPrice) else found.usd


def _own_price(purchase: Purchase, parameters: Mapping[str, Mapping[str, float]]) -> float | None:
    if isinstance(purchase, MachinePurchase):
        return parameters["prices"].get(purchase.machine)
    if isinstance(purchase, StoragePurchase):
        return parameters["storage_prices"].get(purchase.kind)
    return parameters["service_prices"].get(purchase.kind)


def _unpriced(item: Item, purchase: Purchase) -> Violation:
    if isinstance(purchase, MachinePurchase):
        what, allowed = purchase.machine, "a machine type with a price in that region, or in `prices`"
    elif isinstance(purchase, StoragePurchase):
        what, allowed = purchase.kind, "storage with a price in that region, or in `storage_prices`"
    else:
        what, allowed = purchase.kind, "a service with a price in that region, or in `service_prices`"
    region = f" in {purchase.region}" if purchase.region else ""
    return Violation(item.path, f"{what}, which has no price{region}", allowed)


def _counted(items: Sequence[Item], *, has_more: bool) -> str:
    pools = sum(item.is_pool for item in items)
    bought = [purchase for item in items for purchase in item.purchases]
    parts = [f"{pools} pool{'s'[pools == 1 :]}"] if pools else []
    parts += ["a filesystem"] if any(isinstance(each, StoragePurchase) for each in bought) else []
    services = [each.kind for each in bought if isinstance(each, ServicePurchase)]
    parts += ["a control plane" if kind.endswith("cluster") else "NAT" for kind in services]
    listed = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"for {listed or 'nothing'}{', with all declared before' if has_more else ''}"


def _ceilings(resource: Resource, scope: str, path: str, hourly: Decimal, what: str) -> Iterator[Violation]:
    for name, hours, unit in CEILINGS:
        limit = resource.parameters.get(scope + name)
        if limit is not None and hourly * hours > Decimal(str(limit)):
            got = f"{hourly * hours:,.2f} USD/{unit} {what}"
            yield Violation(path, got, f"{limit:,.2f} USD/{unit} at most")


def _of_spec(resource: Resource) -> Iterator[Item]:
    """The purchases of a stack that have a size."""
    spec = resource.props.block("stack")
    cost = cost_of(spec.get("target.kind", ""))
    pools: dict[str, list[MachinePurchase]] = {}
    items = []
    for purchase in cost.purchases(KnownValues(spec.data, spec.path)):
        if isinstance(purchase, MachinePurchase):
            pools.setdefault(spec.at(purchase.path), []).append(purchase)
        elif _has_cost(purchase, resource):
            items.append(Item(spec.at(purchase.path), (purchase,)))
    yield from items
    for path, machines in pools.items():
        yield Item(path, tuple(machines), sum(each.number for each in machines))


def _has_cost(purchase: StoragePurchase | ServicePurchase, resource: Resource) -> bool:
    """Whether it counts: what grows with its use has no size, and ceilings of pools are for nodes alone."""
    if isinstance(purchase, StoragePurchase):
        return purchase.gib is not None
    return _has_stack_ceiling(resource)


def _has_stack_ceiling(resource: Resource) -> bool:
    """Whether there is a ceiling that services count for: those of pools are for nodes."""
    return any(resource.parameters.get(name) is not None for name, _, _ in CEILINGS)


def _of_resource(resource: Resource) -> Iterator[Item]:
    """A cloud's service or filesystem, or its pool at its largest, on demand: spot may fall back to it."""
    rules = cloud_of(resource)
    found = effective_region(resource, rules) if rules else None
    region, cloud = found.name if found else "", CLOUDS[resource.type.partition(":")[0]]
    if resource.type in SERVICES:
        if _has_stack_ceiling(resource):
            kind = SERVICES[resource.type]
            yield Item("type", (ServicePurchase(name=resource.name, cloud=cloud, region=region, kind=kind),))
    elif resource.type in FILESYSTEMS:
        purchase = FILESYSTEMS[resource.type].purchase(resource.props, cloud, region)
        yield Item(purchase.path, (purchase,))
    else:
        yield _of_pool(resource, cloud, region)


def _of_pool(resource: Resource, cloud: str, region: str) -> Item:
    pool = pool_of(resource)
    machines = (
        MachinePurchase(
            name=resource.name,
            cloud=cloud,
            region=region,
            machine=machine,
            capacity="on-demand",
            number=pool.maximum,
        )
        for machine in pool.machine_types
    )
    return Item(pool.machine_path, tuple(machines), pool.maximum)


def _ceiling(scope: str, unit: str) -> dict[str, object]:
    return {"type": "number", "minimum": 0, "description": f"USD per {unit} that {scope} may cost at most."}


def _prices(description: str) -> dict[str, object]:
    number = {"type": "number", "exclusiveMinimum": 0}
    return parameter("object", {}, description, additionalProperties=number)


POLICY = Policy(
    name="cost-ceilings",
    title="The plan stays under its cost ceilings",
    reason="A typing error in a pool's size can cost a year's budget in a weekend.",
    remedy="Lower the number of nodes, or have the ceiling raised.",
    types=(COMPONENTS, *TYPES, *FILESYSTEMS, *SERVICES),
    evaluate=evaluate,
    frameworks=("AWS Well-Architected COST02-BP05", "FinOps: Budgeting"),
    parameters={
        "hourly_usd": _ceiling("all machines, filesystems, control planes and NAT of the stack", "hour"),
        "monthly_usd": _ceiling(
            "all machines, filesystems, control planes and NAT of the stack", "730 hours"
        ),
        "pool_hourly_usd": _ceiling("a pool", "hour"),
        "pool_monthly_usd": _ceiling("a pool", "730 hours"),
        "prices": _prices("USD per instance-hour by machine type, over the catalogue's dated prices."),
        "storage_prices": _prices("USD per GiB-month by kind of storage, such as fsx-lustre-250, likewise."),
        "service_prices": _prices("USD per hour of eks-cluster, gke-cluster, nat-gateway or cloud-nat-vm."),
    },
)
