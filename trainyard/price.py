"""`trainyard price`: what a stack costs, how old that knowledge is, and what is not known."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from rich.console import Console
from rich.table import Table

from infra import catalog
from infra.catalog import Cloud, Estimate, Missing, PoolCost, PoolDemand
from infra.providers.aws.groups import groups
from infra.spec import Stack
from infra.spec.aws import AwsSpec, EfsSpec
from infra.spec.node_pool import NodePoolSpec
from trainyard.forms import Form

NOT_INCLUDED = (
    "control plane",
    "network (NAT, traffic, addresses)",
    "logs",
    "requests",
    "taxes",
    "discounts",
)
"""What a stack costs besides, and the catalogue has no prices of."""


COLUMNS = ("pool", "machine", "bought", "nodes", "USD/h", "USD/month", "price of", "source")


@dataclass(frozen=True)
class Storage:
    """Storage that a stack asks for. The catalogue has no prices of storage, so none is made up."""

    name: str
    what: str
    gib: int | None
    """Size in GiB; None: it grows with what is put there."""

    @property
    def missing(self) -> str:
        """Why it has no price."""
        size = f"{self.gib} GiB" if self.gib else "what is put there"
        return f"no price of {self.what} is known here ({size})"


@dataclass(frozen=True)
class Bill:
    """What a stack costs."""

    stack: str
    estimate: Estimate
    storage: tuple[Storage, ...]

    @property
    def is_complete(self) -> bool:
        """Whether every pool and all storage has a price that is not stale."""
        return not (self.estimate.missing or self.estimate.stale or self.storage)

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Sum over the pools that have a price; None where none has."""
        known = len(self.estimate.missing) < len(self.estimate.pools) or not self.estimate.pools
        return self.estimate.usd_per_hour if known else None

    @property
    def usd_per_month(self) -> Decimal | None:
        """The same for a month of 730 hours."""
        return None if self.usd_per_hour is None else self.usd_per_hour * catalog.HOURS_PER_MONTH

    def data(self) -> dict[str, Any]:
        """Return it as plain data; an amount that is not known is null."""
        return {
            "stack": self.stack,
            "currency": "USD",
            "usdPerHour": _number(self.usd_per_hour),
            "usdPerMonth": _number(self.usd_per_month),
            "hoursPerMonth": catalog.HOURS_PER_MONTH,
            "complete": self.is_complete,
            "pools": [_pool_data(cost) for cost in self.estimate.pools],
            "storage": [
                {"name": each.name, "what": each.what, "gib": each.gib, "missing": each.missing}
                for each in self.storage
            ],
            "notIncluded": list(NOT_INCLUDED),
        }

    @property
    def remarks(self) -> list[str]:
        """What the totals leave out, or rest on: one sentence each."""
        told = [
            f"{cost.pool.name}: not in the totals: {cost.price.reason}"
            for cost in self.estimate.missing
            if isinstance(cost.price, Missing)
        ]
        told += [
            f"{cost.pool.name}: the price is {cost.price.age_days} days old, more than"
            f" {catalog.STALE_AFTER_DAYS}: look it up before you rely on it"
            for cost in self.estimate.stale
            if not isinstance(cost.price, Missing)
        ]
        told += [f"{each.name}: not in the totals: {each.missing}" for each in self.storage]
        return [*told, f"not in the totals either: {', '.join(NOT_INCLUDED)}"]

    def show(self, console: Console) -> None:
        """Print it."""
        table = Table(box=None, pad_edge=False, header_style="dim")
        for column in COLUMNS[:-1]:  # sources are long, and come below
            table.add_column(column, no_wrap=column.startswith("USD"), overflow="fold")
        for row in self._rows():
            table.add_row(*row[:-1])
        console.print(table)
        for source in sorted({row[-1] for row in self._rows()} - {""}):
            console.print(f"[dim]source[/]  {source}", highlight=False)
        for remark in self.remarks:
            console.print(f"[yellow]![/] {remark}", highlight=False)

    def markdown(self) -> str:
        """Return it as a part of a comment on a pull request."""
        rows = "\n".join(f"| {' | '.join(row)} |" for row in self._rows())
        remarks = "\n".join(f"- {remark}" for remark in self.remarks)
        head = f"| {' | '.join(COLUMNS)} |\n|---|---|---|---:|---:|---:|---|---|"
        return f"### Price of `{self.stack}`\n\n{head}\n{rows}\n\n{remarks}\n"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for cost in self.estimate.pools:
            pool, price = cost.pool, cost.price
            amounts = (_told(cost.usd_per_hour), _told(cost.usd_per_month))
            known = (
                ("unknown", "")
                if isinstance(price, Missing)
                else (f"{price.source.date}, {price.age_days} d", price.source.title)
            )
            yield pool.name, pool.machine.name, pool.capacity, str(pool.num_nodes), *amounts, *known
        partly = "known" if self.estimate.missing or self.storage else "all"
        yield partly, "", "", "", _told(self.usd_per_hour), _told(self.usd_per_month), "", ""


def bill(stack: Stack, today: date) -> Bill:
    """Price a stack as of a day; one of kind local buys nothing."""
    if stack.provider.kind == "local":
        return Bill(stack.name, Estimate(()), ())
    demands = [demand for pool in stack.pools for demand in _demands(stack, pool)]
    return Bill(stack.name, catalog.estimate(demands, today), tuple(_storage(stack)))


def show_price(stack: Stack, form: Form, console: Console) -> None:
    """Print what a stack costs."""
    found = bill(stack, datetime.now(UTC).date())
    if form == "json":
        sys.stdout.write(json.dumps(found.data(), indent=1) + "\n")
    elif form == "markdown":
        sys.stdout.write(found.markdown())
    elif stack.provider.kind == "local":
        console.print(f"{stack.name} runs on this machine: nothing is bought", highlight=False)
    else:
        found.show(console)


def _demands(stack: Stack, pool: NodePoolSpec) -> Iterator[PoolDemand]:
    """Machines that a pool buys; a spot pool of several machine types buys some of each."""
    region = str(getattr(stack.provider, "region", ""))
    if not isinstance(stack.provider, AwsSpec):
        machine = catalog.machine(cast(Cloud, stack.provider.kind), pool.machine or "")
        yield PoolDemand(pool.name, machine, region, pool.capacity, pool.num_nodes)
        return
    nodes: Counter[str] = Counter()
    for group in groups(pool, stack.provider.zones):
        nodes[group.machine.name] += group.num_nodes
    for name, number in nodes.items():
        yield PoolDemand(pool.name, catalog.machine("aws", name), region, pool.capacity, number)


def _storage(stack: Stack) -> Iterator[Storage]:
    provider = stack.provider
    if isinstance(provider, AwsSpec):
        filesystem = provider.filesystem
        if isinstance(filesystem, EfsSpec):
            yield Storage("filesystem", "Elastic File System", None)
        else:
            speed = f"FSx for Lustre at {filesystem.throughput} MB/s per TiB"
            yield Storage("filesystem", speed, filesystem.capacity_gib)
    yield Storage("object store", f"bucket {stack.storage.object_store.bucket}", None)


def _pool_data(cost: PoolCost) -> dict[str, Any]:
    pool, price = cost.pool, cost.price
    known: dict[str, Any] = (
        {"missing": price.reason}
        if isinstance(price, Missing)
        else {
            "usdPerNodeHour": _number(price.usd_per_hour),
            "priceDate": price.source.date.isoformat(),
            "ageDays": price.age_days,
            "stale": price.stale,
            "source": price.source.title,
            "url": price.source.url,
        }
    )
    return {
        "name": pool.name,
        "machine": pool.machine.name,
        "region": pool.region,
        "capacity": pool.capacity,
        "nodes": pool.num_nodes,
        "usdPerHour": _number(cost.usd_per_hour),
        "usdPerMonth": _number(cost.usd_per_month),
        **known,
    }


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else round(float(amount), 4)


def _told(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"
