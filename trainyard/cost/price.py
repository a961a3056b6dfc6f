"""`trainyard cost`: prints what a stack's pools, storage, services and dataset transfers cost, and how old
each price is.
"""

import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any, cast

from rich.console import Console

import catalog
from catalog import (
    Dated,
    Estimate,
    MachinePurchase,
    MissingPrice,
    PricedPurchase,
    Purchase,
    ServicePurchase,
    StoragePurchase,
    TrafficPrice,
)
from engine.tables import PlainTable
from infra.common.target_registry import target_of
from infra.stackfile import Stack
from infra.stackfile.storage import LifecycleSpec
from trainyard.forms import ReportForm

NOT_INCLUDED = (
    "network (traffic, addresses, endpoints)",
    "logs",
    "requests and throughput of storage",
    "taxes",
    "discounts",
)
"""Costs of a stack that the catalogue has no prices of."""

_EXAMPLE_GB, _SAVES_PER_DAY = 112, 48
"""Checkpoint of 7B parameters with Adam: 2 bytes of weights and 14 of optimizer state each."""
COLUMNS = ("what", "kind", "bought", "number", "USD/h", "USD/month", "price of", "source")


@dataclass(frozen=True)
class Transfer:
    """Transfer of a staged dataset, with the egress price of its cloud; once for each version."""

    dataset: str
    gib: int
    price: TrafficPrice | MissingPrice

    @property
    def usd(self) -> Decimal | None:
        """Cost of the whole dataset; None where the price is not known."""
        return None if isinstance(self.price, MissingPrice) else self.price.usd_per_gib * self.gib

    @property
    def is_known(self) -> bool:
        """Whether there is a price that is not stale."""
        return not (isinstance(self.price, MissingPrice) or self.price.stale)

    @property
    def remark(self) -> str:
        """Cost of the transfer in words, or why it is unknown."""
        what = f"dataset {self.dataset}, {self.gib} GiB, once"
        if isinstance(self.price, MissingPrice):
            return f"{what}: {self.price.reason}"
        rate = f"{self.price.usd_per_gib.normalize():f} USD per GiB, {self.price.source.date}"
        return f"{what}: {_amount(self.usd)} USD of egress ({rate}: {self.price.source.title})"


@dataclass(frozen=True)
class PriceReport:
    """Costs of a stack."""

    stack: str
    estimate: Estimate
    transfers: tuple[Transfer, ...] = ()
    deleted_checkpoints: str = ""
    """What deleted checkpoints add to the bucket's bill, in words; empty where the stack makes no bucket."""
    why_nothing_bought: str = ""
    """Reason why the stack buys nothing; empty if it buys something."""

    @property
    def pools(self) -> tuple[PricedPurchase, ...]:
        """Costs of its machines."""
        return tuple(cost for cost in self.estimate.costs if isinstance(cost.purchase, MachinePurchase))

    @property
    def storage(self) -> tuple[PricedPurchase, ...]:
        """Costs of its storage."""
        return tuple(cost for cost in self.estimate.costs if isinstance(cost.purchase, StoragePurchase))

    @property
    def services(self) -> tuple[PricedPurchase, ...]:
        """Costs of services that are billed by the hour."""
        return tuple(cost for cost in self.estimate.costs if isinstance(cost.purchase, ServicePurchase))

    @property
    def is_complete(self) -> bool:
        """Whether each item and transfer has a price that is not stale, and storage a size."""
        known = all(each.is_known for each in self.transfers)
        return known and not any(map(remark, self.estimate.costs))

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Sum over the pools, storage and services that have a price; None where none has."""
        known = any(cost.usd_per_hour is not None for cost in self.estimate.costs)
        return self.estimate.usd_per_hour if known or not self.estimate.costs else None

    @property
    def usd_per_month(self) -> Decimal | None:
        """Sum per month of 730 hours."""
        return None if self.usd_per_hour is None else self.estimate.usd_per_month

    def data(self) -> dict[str, Any]:
        """Return it as plain data; an amount that is not known is null."""
        return {
            "stack": self.stack,
            "currency": "USD",
            "usdPerHour": _number(self.usd_per_hour),
            "usdPerMonth": _number(self.usd_per_month),
            "hoursPerMonth": catalog.HOURS_PER_MONTH,
            "complete": self.is_complete,
            "pools": [_pool_data(cost) for cost in self.pools],
            "storage": [_storage_data(each) for each in self.storage],
            "services": [_service_data(each) for each in self.services],
            "transfers": [_transfer_data(each) for each in self.transfers],
            "notIncluded": list(self.not_included),
        }

    @property
    def not_included(self) -> tuple[str, ...]:
        """Costs of the stack that this report has no prices of."""
        return NOT_INCLUDED if self.services else ("control plane", *NOT_INCLUDED)

    @property
    def remarks(self) -> list[str]:
        """Exclusions and assumptions of the totals: one sentence each."""
        missing = [remark(cost) for cost in self.pools if isinstance(cost.price, MissingPrice)]
        old = [remark(cost) for cost in self.pools if not isinstance(cost.price, MissingPrice)]
        remarks = [each for each in (*missing, *old, *map(remark, (*self.storage, *self.services))) if each]
        remarks += [each.remark for each in self.transfers]
        remarks += filter(None, [self.deleted_checkpoints])
        return [*remarks, f"not in the totals either: {', '.join(self.not_included)}"]

    def show(self, console: Console) -> None:
        """Print it."""
        table = PlainTable(*COLUMNS[:-1])  # sources are long, and come below
        for row in self._rows():
            table.add_row(*row[:-1])
        table.show(console)
        for source in sorted({row[-1] for row in self._rows()} - {""}):
            console.print(f"[dim]source[/]  {source}", highlight=False, soft_wrap=True)
        for remark in self.remarks:
            console.print(f"[yellow]![/] {remark}", highlight=False, soft_wrap=True)

    def markdown(self) -> str:
        """Return it as a part of a comment on a pull request."""
        rows = "\n".join(f"| {' | '.join(row)} |" for row in self._rows())
        remarks = "\n".join(f"- {remark}" for remark in self.remarks)
        head = f"| {' | '.join(COLUMNS)} |\n|---|---|---|---:|---:|---:|---|---|"
        return f"### Price of `{self.stack}`\n\n{head}\n{rows}\n\n{remarks}\n"

    def _rows(self) -> Iterator[tuple[str, ...]]:
        for cost in (*self.pools, *self.storage, *self.services):
            amounts = (_amount(cost.usd_per_hour), _amount(cost.usd_per_month))
            yield cost.name, *_shown(cost.purchase), *amounts, *_dated(cost.price)
        unpriced = any(cost.usd_per_hour is None for cost in self.estimate.costs)
        partly = "known" if unpriced else "all"
        yield partly, "", "", "", _amount(self.usd_per_hour), _amount(self.usd_per_month), "", ""


def price_report(stack: Stack, today: date) -> PriceReport:
    """Price a stack as of a day."""
    cost = target_of(stack.target.kind).cost
    purchases = cost.purchases(stack.model_dump(mode="json", by_alias=True))
    transfers = tuple(_transfers(stack, today))
    found = catalog.estimate(purchases, today)
    return PriceReport(stack.name, found, transfers, _deleted(stack, found), cost.nothing_bought)


def _deleted(stack: Stack, found: Estimate) -> str:
    """Say what deleted checkpoints cost at most, by an example, since sizes and intervals are the jobs'."""
    least = stack.target.LEAST_DELETED_DAYS
    days = (stack.storage.object_store.lifecycle or LifecycleSpec()).checkpoint_days(least) if least else 0
    if not days or any(getattr(stack.target, key, None) for key in ("existing_bucket", "storage_group")):
        return ""
    num_gb = _EXAMPLE_GB * _SAVES_PER_DAY * days
    prices = (each.price for each in found.costs if each.name == "object store")
    rates = [price.usd for price in prices if not isinstance(price, MissingPrice)]
    usd = f", {_amount(rates[0] * num_gb * 10**9 / 2**30)} USD a month" if rates else ""
    return (
        f"bucket: not in the totals: deleted checkpoints are billed for {days} d more; 7B parameters with"
        f" Adam ({_EXAMPLE_GB} GB), saved each half hour, keep {num_gb / 1000:.1f} TB there{usd}"
        " (storage.object_store.lifecycle.deleted_checkpoint_days)"
    )


def _transfers(stack: Stack, today: date) -> Iterator[Transfer]:
    """Transfers of datasets that come from a cloud; others are on disk, or on an unpriced server."""
    target = (stack.target.kind, stack.target.price_region)
    for each in stack.datasets:
        if each.cloud is None:
            continue
        if each.region is None:
            reason = "its `region` is not set, so its egress has no price"
            yield Transfer(each.name, each.size_gib, MissingPrice(reason))
        else:
            price = catalog.egress_price(each.cloud, each.region, target, today)
            yield Transfer(each.name, each.size_gib, price)


def show_price(stack: Stack, form: ReportForm, console: Console) -> None:
    """Print a stack's costs."""
    found = price_report(stack, datetime.now(UTC).date())
    if form == "json":
        sys.stdout.write(json.dumps(found.data(), indent=1) + "\n")
    elif form == "markdown":
        sys.stdout.write(found.markdown())
    elif found.why_nothing_bought:
        console.print(f"{stack.name} {found.why_nothing_bought}: nothing is bought", highlight=False)
        for transfer in found.transfers:
            console.print(f"[yellow]![/] {transfer.remark}", highlight=False, soft_wrap=True)
    else:
        found.show(console)


def remark(cost: PricedPurchase) -> str:
    """Return exclusions or assumptions of the totals about a cost; empty if there are none."""
    purchase, price = cost.purchase, cost.price
    if isinstance(purchase, StoragePurchase):
        size = f"{purchase.gib} GiB" if purchase.gib else "objects that jobs store"
        if isinstance(price, MissingPrice):
            return f"{cost.name}: not in the totals: {price.reason} ({size})"
        if purchase.gib is None:
            rate = f"{price.usd.normalize():f} USD per GiB-month"
            return f"{cost.name}: not in the totals: {rate} of {size}, on {price.source.date}"
    if isinstance(price, MissingPrice):
        return f"{cost.name}: not in the totals: {price.reason}"
    return _old(cost.name, price) if price.stale else ""


def _shown(purchase: Purchase) -> tuple[str, str, str]:
    """Description of a purchase: what, how, and how much of it."""
    if isinstance(purchase, MachinePurchase):
        return purchase.machine, purchase.capacity, str(purchase.number)
    if isinstance(purchase, StoragePurchase):
        return purchase.kind, "storage", f"{purchase.gib} GiB" if purchase.gib else "as used"
    return purchase.kind, "by the hour", str(purchase.number)


def _pool_data(cost: PricedPurchase) -> dict[str, Any]:
    bought = cast(MachinePurchase, cost.purchase)
    head = {
        "name": cost.name,
        "machine": bought.machine,
        "region": bought.region,
        "capacity": bought.capacity,
        "nodes": bought.number,
    }
    return {**head, **_cost_data(cost, "usdPerNodeHour")}


def _storage_data(cost: PricedPurchase) -> dict[str, Any]:
    bought = cast(StoragePurchase, cost.purchase)
    return {"name": cost.name, "kind": bought.kind, "gib": bought.gib, **_cost_data(cost, "usdPerGibMonth")}


def _service_data(cost: PricedPurchase) -> dict[str, Any]:
    bought = cast(ServicePurchase, cost.purchase)
    head = {"name": cost.name, "kind": bought.kind, "number": bought.number}
    return {**head, **_cost_data(cost, "usdPerServiceHour")}


def _cost_data(cost: PricedPurchase, of_one: str) -> dict[str, Any]:
    """Amounts of a cost, and its price with its age, or why it has none."""
    price = cost.price
    known: dict[str, Any] = (
        {"missing": price.reason}
        if isinstance(price, MissingPrice)
        else {of_one: _number(price.usd), **_dated_data(price)}
    )
    return {"usdPerHour": _number(cost.usd_per_hour), "usdPerMonth": _number(cost.usd_per_month), **known}


def _transfer_data(each: Transfer) -> dict[str, Any]:
    known = (
        {"missing": each.price.reason} if isinstance(each.price, MissingPrice) else _dated_data(each.price)
    )
    return {"dataset": each.dataset, "gib": each.gib, "usd": _number(each.usd), **known}


def _dated_data(price: Dated) -> dict[str, Any]:
    return {
        "priceDate": price.source.date.isoformat(),
        "ageDays": price.age_days,
        "stale": price.stale,
        "source": price.source.title,
        "url": price.source.url,
    }


def _dated(price: Dated | MissingPrice) -> tuple[str, str]:
    """Day and age of a price, and its source."""
    if isinstance(price, MissingPrice):
        return "unknown", ""
    return f"{price.source.date}, {price.age_days} d", price.source.title


def _old(name: str, price: Dated) -> str:
    stale = f"{name}: the price is {price.age_days} days old, more than {catalog.STALE_AFTER_DAYS}"
    return f"{stale}: look it up before you rely on it"


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else round(float(amount), 4)


def _amount(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"
