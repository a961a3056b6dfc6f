"""The plan cannot cost more than was agreed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from policies.policy import Policy, Resource, Violation
from policies.pools import TYPES, pool_of
from policies.prices import (
    HOURS_PER_MONTH,
    Asked,
    Demand,
    OwnPrices,
    Service,
    Unpriced,
    Volume,
    usd_per_hour,
)
from policies.region import cloud_of, effective_region
from policies.unknowns import Properties

COMPONENT = "trainyard:infra:"
TIB = 1024


@dataclass(frozen=True)
class Sized:
    """A filesystem whose size is bought: as the catalogue prices it, and which properties say how much."""

    kind: str
    speed: str
    """The property of its speed, tier or level; of a name with dashes, the last part counts."""
    size: str
    gib: float = 1
    """What one of its size is in GiB."""

    def asked(self, props: Properties, region: str) -> Volume:
        """What a resource, or the filesystem of a spec, asks for."""
        speed = str(props.get(self.speed, "unspecified")).lower().rpartition("-")[2]
        # Of Google's Managed Lustre the size is a text.
        gib = float(props.get(self.size, 0)) * self.gib
        return Volume(props.at(self.size), f"{self.kind}-{speed}", region, gib)


_NETAPP = Sized("netapp", "serviceLevel", "size", gib=1 / 1024**3)
FILESYSTEMS = {
    "aws:fsx/lustreFileSystem:LustreFileSystem": Sized(
        "fsx-lustre", "perUnitStorageThroughput", "storageCapacity"
    ),
    "gcp:lustre/instance:Instance": Sized("managed-lustre", "perUnitStorageThroughput", "capacityGib"),
    "gcp:filestore/instance:Instance": Sized("filestore", "tier", "fileShares.capacityGb"),
    "azure-native:storagecache:AmlFilesystem": Sized("azure-lustre", "sku.name", "storageCapacityTiB", TIB),
    "azure-native:netapp:CapacityPool": _NETAPP,
    "azure-native:netapp:Pool": _NETAPP,
}
"""By type; of NetApp Files the pool is paid for, whatever its volumes take of it."""
_OF_SPECS = {
    ("aws", "lustre"): Sized("fsx-lustre", "throughput", "capacity_gib"),
    ("gcp", "lustre"): Sized("managed-lustre", "throughput", "capacity_gib"),
    ("gcp", "filestore"): Sized("filestore", "tier", "capacity_gib"),
    ("azure", "lustre"): Sized("azure-lustre", "throughput", "capacity_tib", TIB),
    ("azure", "netapp"): Sized("netapp", "service_level", "capacity_tib", TIB),
}
"""By the provider and filesystem of a cluster's spec; what grows with its use has no size there."""
SERVICES = {
    "aws:eks/cluster:Cluster": "eks-cluster",
    "aws:ec2/natGateway:NatGateway": "nat-gateway",
    "gcp:container/cluster:Cluster": "gke-cluster",
}
"""Type → kind of service. Cloud NAT costs by the machines behind it, which its resource does not say."""
_CONTROL_PLANES = {"aws": "eks-cluster", "gcp": "gke-cluster"}
PRICED_NAT_VMS = 32
"""Cloud NAT costs no more by the hour for machines beyond these."""
CEILINGS = (("hourly_usd", 1, "h"), ("monthly_usd", HOURS_PER_MONTH, "month"))


def judge(resource: Resource) -> Iterator[Violation]:
    """The priced plan against the ceilings: of each pool, and of the stack.

    A cluster's component carries its whole spec, so its sum is judged before anything of it exists. Clusters,
    and what other programs declare of pools, filesystems, control planes and NAT, are added up in the order
    in which they are declared: the one that passes the ceiling is refused before it is made.
    """
    limits = (resource.parameters.get(f"{scope}{name}") for scope in ("", "pool_") for name, _, _ in CEILINGS)
    if all(limit is None for limit in limits):
        return
    whole = resource.type.startswith(COMPONENT)
    parameters = resource.parameters
    own = OwnPrices(parameters["prices"], parameters["storage_prices"], parameters["service_prices"])
    asked = list(_of_spec(resource)) if whole else list(_of_resource(resource))
    costs = []
    for each in asked:
        cost = usd_per_hour(each, own)
        if isinstance(cost, Unpriced):
            yield Violation(cost.path, str(cost), cost.allowed)
            continue
        costs.append(cost)
        if isinstance(each, Demand):
            yield from _ceilings(resource, "pool_", each.path, cost, f"at {each.number} nodes")
    if whole or COMPONENT not in resource.urn:  # what a component has was added up with its spec
        total = resource.stack.costs
        total[resource.urn or resource.name] = sum(costs)
        where = "stack.pools" if whole else asked[0].path if asked else "type"
        yield from _ceilings(resource, "", where, sum(total.values()), _counted(asked, others=len(total) > 1))


def _counted(asked: Sequence[Asked], *, others: bool) -> str:
    pools = sum(isinstance(each, Demand) for each in asked)
    parts = [f"{pools} pool{'s'[pools == 1 :]}"] if pools else []
    parts += ["a filesystem"] if any(isinstance(each, Volume) for each in asked) else []
    services = [each.kind for each in asked if isinstance(each, Service)]
    parts += ["a control plane" if kind.endswith("cluster") else "NAT" for kind in services]
    told = " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)
    return f"for {told}{', with all declared before' if others else ''}"


def _ceilings(resource: Resource, scope: str, path: str, hourly: float, what: str) -> Iterator[Violation]:
    for name, hours, unit in CEILINGS:
        limit = resource.parameters.get(scope + name)
        if limit is not None and hourly * hours > limit:
            got = f"{hourly * hours:,.2f} USD/{unit} {what}"
            yield Violation(path, got, f"{limit:,.2f} USD/{unit} at most")


def _of_spec(resource: Resource) -> Iterator[Asked]:
    spec = resource.props.block("stack")
    region = spec.get("provider.region") or ""
    if _limits_the_stack(resource):
        yield from _services(spec, region)
    filesystem = spec.block("provider.filesystem")
    sized = _OF_SPECS.get((spec.get("provider.kind"), filesystem.get("kind")))
    if sized and not filesystem.block("existing").data:
        yield sized.asked(filesystem, region)
    for pool in spec.blocks("pools"):
        if pool.get("accelerator.model") == "simulated" or spec.get("provider.kind") == "local":
            continue  # costs nothing
        yield Demand(
            path=pool.at("machine"),
            machines=(pool.get("machine", "nothing"), *pool.texts("alternatives")),
            region=region,
            number=pool.get("num_nodes", 0),
            spot=pool.get("capacity") == "spot",
        )


def _limits_the_stack(resource: Resource) -> bool:
    """Whether there is a ceiling that services count for: those of pools are of machines."""
    return any(resource.parameters.get(name) is not None for name, _, _ in CEILINGS)


def _services(spec: Properties, region: str) -> Iterator[Service]:
    """The control plane, and the way out of a network that the stack makes."""
    kind = spec.get("provider.kind")
    network = spec.block("provider.network")
    if kind in _CONTROL_PLANES and not spec.block("provider.existing_cluster").data:
        yield Service("stack.provider", _CONTROL_PLANES[kind], region)
    if network.block("existing").data or kind not in _CONTROL_PLANES:
        return
    nat = network.get("nat")
    if kind == "aws" and nat in ("one", "per-zone"):
        number = 1 if nat == "one" else len(spec.texts("provider.zones"))
        yield Service(network.at("nat"), "nat-gateway", region, number)
    if kind == "gcp" and nat:
        nodes = sum(pool.get("num_nodes", 0) for pool in spec.blocks("pools"))
        yield Service(network.at("nat"), "cloud-nat-vm", region, min(nodes, PRICED_NAT_VMS))


def _of_resource(resource: Resource) -> Iterator[Asked]:
    """A cloud's service or filesystem, or its pool at its largest, on demand: spot may fall back to it."""
    cloud = cloud_of(resource)
    found = effective_region(resource, cloud) if cloud else None
    region = found.name if found else ""
    if resource.type in SERVICES:
        if _limits_the_stack(resource):
            yield Service("type", SERVICES[resource.type], region)
        return
    if resource.type in FILESYSTEMS:
        yield FILESYSTEMS[resource.type].asked(resource.props, region)
        return
    pool = pool_of(resource)
    yield Demand(pool.machine_path, pool.machine_types, region, pool.maximum)


def _ceiling(scope: str, unit: str) -> dict[str, object]:
    return {"type": "number", "minimum": 0, "description": f"USD per {unit} that {scope} may cost at most."}


POLICY = Policy(
    name="cost-ceilings",
    title="The plan stays under its cost ceilings",
    reason="One digit too many in a pool's size costs more in a weekend than the project in a year.",
    remedy="Lower the number of nodes, or have the ceiling raised.",
    types=("trainyard:infra:*Cluster", *TYPES, *FILESYSTEMS, *SERVICES),
    judge=judge,
    frameworks=("AWS Well-Architected COST02-BP05", "FinOps: Budgeting"),
    parameters={
        "hourly_usd": _ceiling("all machines, filesystems, control planes and NAT of the stack", "hour"),
        "monthly_usd": _ceiling(
            "all machines, filesystems, control planes and NAT of the stack", "730 hours"
        ),
        "pool_hourly_usd": _ceiling("a pool", "hour"),
        "pool_monthly_usd": _ceiling("a pool", "730 hours"),
        "prices": {
            "type": "object",
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
            "default": {},
            "description": "USD per instance-hour by machine type, over the catalogue's dated prices.",
        },
        "storage_prices": {
            "type": "object",
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
            "default": {},
            "description": "USD per GiB-month by kind of storage, such as fsx-lustre-250 or netapp-premium,"
            " likewise.",
        },
        "service_prices": {
            "type": "object",
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
            "default": {},
            "description": "USD per hour of eks-cluster, gke-cluster, nat-gateway, cloud-nat-vm, likewise.",
        },
    },
)
