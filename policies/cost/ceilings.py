"""A pool cannot cost more than was agreed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from policies.policy import Policy, Resource, Violation
from policies.pools import TYPES, pool_of

HOURS_PER_MONTH = 730
"""365 × 24 / 12, as the clouds' calculators count."""


@cache
def prices() -> Mapping[str, Mapping[str, Any]]:
    """Machine type → usd, date, source."""
    text = (Path(__file__).parent / "prices.yaml").read_text(encoding="utf-8")
    data: Mapping[str, Mapping[str, Any]] = yaml.safe_load(text)
    return data


def judge(resource: Resource) -> Iterator[Violation]:
    """The pool at its largest, at the dearest of its machine types, on demand: spot may fall back to it."""
    hourly, monthly = (resource.parameters.get(name) for name in ("hourly_usd", "monthly_usd"))
    if hourly is None and monthly is None:
        return
    pool = pool_of(resource)
    known = {**{name: price["usd"] for name, price in prices().items()}, **resource.parameters["prices"]}
    for machine in pool.machine_types:
        if machine not in known:
            yield Violation(
                pool.machine_path, f"{machine}, which has no price", "a machine type with a price"
            )
    cost = pool.maximum * max((known.get(machine, 0) for machine in pool.machine_types), default=0)
    for limit, total, unit in ((hourly, cost, "h"), (monthly, cost * HOURS_PER_MONTH, "month")):
        if limit is not None and total > limit:
            got = f"{total:,.2f} USD/{unit} at {pool.maximum} nodes"
            yield Violation(pool.machine_path, got, f"{limit:,.2f} USD/{unit} at most")


POLICY = Policy(
    name="cost-ceilings",
    title="Pools stay under their cost ceilings",
    reason="One digit too many in a pool's size costs more in a weekend than the project in a year.",
    remedy="Lower the pool's maximum size, or have the ceiling raised.",
    types=TYPES,
    judge=judge,
    frameworks=("AWS Well-Architected COST02-BP05", "FinOps: Budgeting"),
    parameters={
        "hourly_usd": {"type": "number", "minimum": 0, "description": "Ceiling of a pool per hour."},
        "monthly_usd": {"type": "number", "minimum": 0, "description": "Ceiling of a pool per 730 hours."},
        "prices": {
            "type": "object",
            "additionalProperties": {"type": "number"},
            "default": {},
            "description": "USD per instance-hour by machine type, over the pack's own dated table.",
        },
    },
)
