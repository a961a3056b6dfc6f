"""The plan cannot cost more than was agreed."""

from __future__ import annotations

from collections.abc import Iterator

from policies.policy import Policy, Resource, Violation
from policies.pools import TYPES, pool_of
from policies.prices import HOURS_PER_MONTH, Demand, Unpriced, usd_per_hour
from policies.region import cloud_of, effective_region

COMPONENT = "trainyard:infra:"
CEILINGS = (("hourly_usd", 1, "h"), ("monthly_usd", HOURS_PER_MONTH, "month"))


def judge(resource: Resource) -> Iterator[Violation]:
    """The priced plan against the ceilings: of each pool, and of the stack.

    A cluster's component carries its whole spec, so its sum is judged before anything of it exists; a program
    with several clusters has the ceiling for each. Pools of other programs are added up in the order in which
    they are declared: the one that passes the ceiling is refused before it is made.
    """
    if not any(
        resource.parameters.get(f"{scope}{name}") for scope in ("", "pool_") for name, _, _ in CEILINGS
    ):
        return
    if resource.type.startswith(COMPONENT):
        demands = list(_of_spec(resource))
        where = "stack.pools"
    else:
        demands = [_of_pool(resource)]
        where = demands[0].path
    costs = []
    for demand in demands:
        cost = usd_per_hour(demand, resource.parameters["prices"])
        if isinstance(cost, Unpriced):
            yield Violation(
                cost.path, str(cost), "a machine type with a price in that region, or in `prices`"
            )
            continue
        costs.append(cost)
        yield from _ceilings(resource, "pool_", demand.path, cost, f"at {demand.number} nodes")
    if resource.type.startswith(COMPONENT):
        yield from _ceilings(
            resource, "", where, sum(costs), f"for {len(demands)} pool{'s'[len(demands) == 1 :]}"
        )
    elif COMPONENT not in resource.urn:  # pools of a component were added up with its spec
        resource.stack.costs[resource.urn or resource.name] = sum(costs)
        total = sum(resource.stack.costs.values())
        yield from _ceilings(resource, "", where, total, "with the pools before it")


def _ceilings(resource: Resource, scope: str, path: str, hourly: float, what: str) -> Iterator[Violation]:
    for name, hours, unit in CEILINGS:
        limit = resource.parameters.get(scope + name)
        if limit is not None and hourly * hours > limit:
            got = f"{hourly * hours:,.2f} USD/{unit} {what}"
            yield Violation(path, got, f"{limit:,.2f} USD/{unit} at most")


def _of_spec(resource: Resource) -> Iterator[Demand]:
    spec = resource.props.block("stack")
    region = spec.get("provider.region") or ""
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


def _of_pool(resource: Resource) -> Demand:
    """A cloud's pool at its largest, on demand: spot may fall back to it."""
    pool = pool_of(resource)
    cloud = cloud_of(resource)
    region = effective_region(resource, cloud) if cloud else None
    return Demand(pool.machine_path, pool.machine_types, region.name if region else "", pool.maximum)


def _ceiling(scope: str, unit: str) -> dict[str, object]:
    return {"type": "number", "minimum": 0, "description": f"USD per {unit} that {scope} may cost at most."}


POLICY = Policy(
    name="cost-ceilings",
    title="The plan stays under its cost ceilings",
    reason="One digit too many in a pool's size costs more in a weekend than the project in a year.",
    remedy="Lower the number of nodes, or have the ceiling raised.",
    types=("trainyard:infra:*Cluster", *TYPES),
    judge=judge,
    frameworks=("AWS Well-Architected COST02-BP05", "FinOps: Budgeting"),
    parameters={
        "hourly_usd": _ceiling("all machines of the stack", "hour"),
        "monthly_usd": _ceiling("all machines of the stack", "730 hours"),
        "pool_hourly_usd": _ceiling("a pool", "hour"),
        "pool_monthly_usd": _ceiling("a pool", "730 hours"),
        "prices": {
            "type": "object",
            "additionalProperties": {"type": "number", "exclusiveMinimum": 0},
            "default": {},
            "description": "USD per instance-hour by machine type, over the catalogue's dated prices.",
        },
    },
)
