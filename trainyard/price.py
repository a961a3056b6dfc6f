"""`trainyard price`: what a stack costs, how old that knowledge is, and what is not known."""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

from rich.console import Console
from rich.table import Table

import catalog
from catalog import (
    Dated,
    Estimate,
    Missing,
    PoolCost,
    PoolDemand,
    Price,
    StoragePrice,
    TrafficPrice,
)
from infra.spec import Stack
from infra.spec.node_pool import NodePoolSpec
from infra.spec.provider import ProviderSpec
from infra.targets.aws.spec.groups import groups
from infra.targets.aws.spec.provider import AwsSpec, EfsSpec, LustreSpec
from infra.targets.azure.spec.provider import AzureLustreSpec, AzureSpec, NetAppSpec
from infra.targets.gcp.spec.provider import FilestoreSpec, GcpSpec
from trainyard.forms import Form

NOT_INCLUDED = (
    "network (traffic, addresses, endpoints)",
    "logs",
    "requests and throughput of storage",
    "taxes",
    "discounts",
)
"""What a stack costs besides, and the catalogue has no prices of."""


PRICED_NAT_VMS = 32
"""Cloud NAT costs no more by the hour for machines beyond these (its traffic does)."""
COLUMNS = ("what", "kind", "bought", "number", "USD/h", "USD/month", "price of", "source")


@dataclass(frozen=True)
class Storage:
    """Storage that a stack asks for, and its price."""

    name: str
    kind: str
    """As the catalogue prices it: `fsx-lustre-250`."""
    gib: int | None
    """Size in GiB; None: it grows with what is put there."""
    price: StoragePrice | Missing

    @property
    def usd_per_month(self) -> Decimal | None:
        """Cost for a month; None where the price or the size is not known."""
        if isinstance(self.price, Missing) or self.gib is None:
            return None
        return self.price.usd_per_gib_month * self.gib

    @property
    def usd_per_hour(self) -> Decimal | None:
        """The same for one of the month's 730 hours."""
        return None if self.usd_per_month is None else self.usd_per_month / catalog.HOURS_PER_MONTH

    @property
    def remark(self) -> str:
        """What the totals leave out of it, or rest on; empty where there is nothing to say."""
        size = f"{self.gib} GiB" if self.gib else "what is put there"
        if isinstance(self.price, Missing):
            return f"{self.name}: not in the totals: {self.price.reason} ({size})"
        if self.gib is None:
            rate = f"{self.price.usd_per_gib_month.normalize():f} USD per GiB-month"
            return f"{self.name}: not in the totals: {rate} of {size}, on {self.price.source.date}"
        return _old(self.name, self.price) if self.price.stale else ""


@dataclass(frozen=True)
class Service:
    """What runs by the hour beside the machines, and its price."""

    name: str
    kind: str
    """As the catalogue prices it: `nat-gateway`."""
    number: int
    price: Price | Missing

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Cost of all for an hour; None where the price is not known."""
        return None if isinstance(self.price, Missing) else self.price.usd_per_hour * self.number

    @property
    def usd_per_month(self) -> Decimal | None:
        """The same for a month of 730 hours."""
        return None if self.usd_per_hour is None else self.usd_per_hour * catalog.HOURS_PER_MONTH

    @property
    def remark(self) -> str:
        """What the totals leave out of it, or rest on; empty where there is nothing to say."""
        if isinstance(self.price, Missing):
            return f"{self.name}: not in the totals: {self.price.reason}"
        return _old(self.name, self.price) if self.price.stale else ""


@dataclass(frozen=True)
class Transfer:
    """A dataset that is staged, and what its cloud takes for letting it go; paid once for each version."""

    dataset: str
    gib: int
    price: TrafficPrice | Missing

    @property
    def usd(self) -> Decimal | None:
        """Cost of the whole dataset; None where the price is not known."""
        return None if isinstance(self.price, Missing) else self.price.usd_per_gib * self.gib

    @property
    def is_known(self) -> bool:
        """Whether there is a price that is not stale."""
        return not (isinstance(self.price, Missing) or self.price.stale)

    @property
    def remark(self) -> str:
        """What it costs, or why that is not known."""
        what = f"dataset {self.dataset}, {self.gib} GiB, once"
        if isinstance(self.price, Missing):
            return f"{what}: {self.price.reason}"
        rate = f"{self.price.usd_per_gib.normalize():f} USD per GiB, {self.price.source.date}"
        return f"{what}: {_told(self.usd)} USD of egress ({rate}: {self.price.source.title})"


@dataclass(frozen=True)
class Bill:
    """What a stack costs."""

    stack: str
    estimate: Estimate
    storage: tuple[Storage, ...]
    services: tuple[Service, ...] = ()
    transfers: tuple[Transfer, ...] = ()

    @property
    def _besides(self) -> tuple[Storage | Service, ...]:
        """What is bought besides machines."""
        return (*self.storage, *self.services)

    @property
    def is_complete(self) -> bool:
        """Whether every pool, all storage and each service has a price that is not stale."""
        remarks = any(each.remark for each in self._besides)
        known = all(each.is_known for each in self.transfers)
        return known and not (self.estimate.missing or self.estimate.stale or remarks)

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Sum over the pools, storage and services that have a price; None where none has."""
        costs = [cost.usd_per_hour for cost in self.estimate.pools]
        costs += [each.usd_per_hour for each in self._besides]
        known = [cost for cost in costs if cost is not None]
        return sum(known, Decimal(0)) if known or not costs else None

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
            "storage": [_storage_data(each) for each in self.storage],
            "services": [_service_data(each) for each in self.services],
            "transfers": [_transfer_data(each) for each in self.transfers],
            "notIncluded": list(self.not_included),
        }

    @property
    def not_included(self) -> tuple[str, ...]:
        """What the stack costs besides, and no price is looked for here."""
        return NOT_INCLUDED if self.services else ("control plane", *NOT_INCLUDED)

    @property
    def remarks(self) -> list[str]:
        """What the totals leave out, or rest on: one sentence each."""
        told = [
            f"{cost.pool.name}: not in the totals: {cost.price.reason}"
            for cost in self.estimate.missing
            if isinstance(cost.price, Missing)
        ]
        told += [
            _old(cost.pool.name, cost.price)
            for cost in self.estimate.stale
            if not isinstance(cost.price, Missing)
        ]
        told += [each.remark for each in self._besides if each.remark]
        told += [each.remark for each in self.transfers]
        return [*told, f"not in the totals either: {', '.join(self.not_included)}"]

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
            nodes = str(pool.num_nodes)
            yield pool.name, pool.machine.name, pool.capacity, nodes, *amounts, *_dated(price)
        for each in self.storage:
            size = f"{each.gib} GiB" if each.gib else "as used"
            amounts = (_told(each.usd_per_hour), _told(each.usd_per_month))
            yield each.name, each.kind, "storage", size, *amounts, *_dated(each.price)
        for service in self.services:
            amounts = (_told(service.usd_per_hour), _told(service.usd_per_month))
            number = str(service.number)
            yield service.name, service.kind, "by the hour", number, *amounts, *_dated(service.price)
        unpriced = self.estimate.missing or any(each.usd_per_hour is None for each in self._besides)
        partly = "known" if unpriced else "all"
        yield partly, "", "", "", _told(self.usd_per_hour), _told(self.usd_per_month), "", ""


_BOUGHT_NOWHERE = {"local": "runs on this machine", "onprem": "runs on machines of your own"}


def bill(stack: Stack, today: date) -> Bill:
    """Price a stack as of a day; one of kind local or onprem buys nothing."""
    if stack.provider.kind in _BOUGHT_NOWHERE:
        return Bill(stack.name, Estimate(()), (), transfers=tuple(_transfers(stack, today)))
    demands = [demand for pool in stack.pools for demand in _demands(stack, pool)]
    storage, services = tuple(_storage(stack, today)), tuple(_services(stack, today))
    transfers = tuple(_transfers(stack, today))
    return Bill(stack.name, catalog.estimate(demands, today), storage, services, transfers)


def _transfers(stack: Stack, today: date) -> Iterator[Transfer]:
    """Datasets that come from a cloud; a path is there already, and a web server's owner pays."""
    target = (stack.provider.kind, stack.provider.place)
    for each in stack.datasets:
        if each.cloud is None:
            continue
        if each.region is None:
            reason = "its `region` is not said, so its egress has no price"
            yield Transfer(each.name, each.size_gib, Missing(reason))
        else:
            price = catalog.egress_price(each.cloud, each.region, target, today)
            yield Transfer(each.name, each.size_gib, price)


def show_price(stack: Stack, form: Form, console: Console) -> None:
    """Print what a stack costs."""
    found = bill(stack, datetime.now(UTC).date())
    if form == "json":
        sys.stdout.write(json.dumps(found.data(), indent=1) + "\n")
    elif form == "markdown":
        sys.stdout.write(found.markdown())
    elif stack.provider.kind in _BOUGHT_NOWHERE:
        console.print(
            f"{stack.name} {_BOUGHT_NOWHERE[stack.provider.kind]}: nothing is bought", highlight=False
        )
        for transfer in found.transfers:
            console.print(f"[yellow]![/] {transfer.remark}", highlight=False)
    else:
        found.show(console)


def _demands(stack: Stack, pool: NodePoolSpec) -> Iterator[PoolDemand]:
    """Machines that a pool buys; a spot pool of several machine types buys some of each."""
    # Where a cluster is in one zone, the zone is what prices are listed by.
    region = str(getattr(stack.provider, "region", "") or getattr(stack.provider, "zone", ""))
    if not isinstance(stack.provider, AwsSpec):
        machine = catalog.machine(stack.provider.kind, pool.machine or "")
        yield PoolDemand(pool.name, machine, region, pool.capacity, pool.num_nodes)
        return
    nodes: Counter[str] = Counter()
    for group in groups(pool, stack.provider.zones):
        nodes[group.machine.name] += group.num_nodes
    for name, number in nodes.items():
        yield PoolDemand(pool.name, catalog.machine("aws", name), region, pool.capacity, number)


def _storage(stack: Stack, today: date) -> Iterator[Storage]:
    """The filesystem and the object store, of the kinds that the catalogue prices."""
    provider = stack.provider
    region = str(getattr(provider, "region", ""))
    for name, kind, gib in (*_kinds_of_storage(provider), *_kinds_of_snapshots(stack)):
        yield Storage(name, kind, gib, catalog.storage_price(provider.kind, kind, region, today))


def _kinds_of_storage(provider: ProviderSpec) -> Iterator[tuple[str, str, int | None]]:
    """(what it is for, kind, GiB); a size of None is what will be put there."""
    if isinstance(provider, AwsSpec):
        filesystem = provider.filesystem
        if filesystem.existing is not None:
            pass  # bought by whoever made it
        elif isinstance(filesystem, EfsSpec):
            yield "filesystem", "efs-standard", None
        else:
            yield "filesystem", f"fsx-lustre-{filesystem.throughput}", filesystem.capacity_gib
        yield "object store", "s3-standard", None
    elif isinstance(provider, GcpSpec):
        share = provider.filesystem
        tier = (
            f"filestore-{share.tier}"
            if isinstance(share, FilestoreSpec)
            else f"managed-lustre-{share.throughput}"
        )
        if share.existing is None:
            yield "filesystem", tier, share.capacity_gib
        yield "object store", "gcs-standard", None
    elif isinstance(provider, AzureSpec):
        yield "filesystem", *_azure_filesystem(provider)
        yield "object store", "blob-hot-zrs" if provider.zones else "blob-hot-lrs", None


def _kinds_of_snapshots(stack: Stack) -> Iterator[tuple[str, str, None]]:
    """Those that are kept apart from the filesystem, and paid for by what changes from day to day."""
    filesystem = getattr(stack.provider, "filesystem", None)
    if not isinstance(filesystem, EfsSpec | LustreSpec) or filesystem.existing is not None:
        return
    if filesystem.kept_snapshot_days(stack.storage.checkpoints):
        yield "snapshots", "efs-backup" if isinstance(filesystem, EfsSpec) else "fsx-lustre-backup", None


def _azure_filesystem(provider: AzureSpec) -> tuple[str, int | None]:
    """(kind, GiB)"""
    share = provider.filesystem
    if isinstance(share, AzureLustreSpec):
        return f"azure-lustre-{share.throughput}", share.capacity_tib * 1024
    if isinstance(share, NetAppSpec):
        return f"netapp-{share.service_level}", share.capacity_tib * 1024
    return "blob-nfs-hot", None


def _services(stack: Stack, today: date) -> Iterator[Service]:
    """The control plane, and the way out of a network that the stack makes."""
    provider = stack.provider
    for name, kind, number in _kinds_of_services(stack):
        region = str(getattr(provider, "region", ""))
        price = catalog.service_price(provider.kind, kind, region, today)
        yield Service(name, kind, number, price)


def _kinds_of_services(stack: Stack) -> Iterator[tuple[str, str, int]]:
    """(what it is for, kind, how many)."""
    provider = stack.provider
    if isinstance(provider, AwsSpec):
        if provider.existing_cluster is None:
            yield "control plane", "eks-cluster", 1
        gateways = {"none": 0, "one": 1, "per-zone": len(provider.zones)}[provider.network.nat]
        if gateways and provider.network.existing is None:
            yield "NAT", "nat-gateway", gateways
    elif isinstance(provider, GcpSpec):
        if provider.existing_cluster is None:
            yield "control plane", "gke-cluster", 1
        if provider.network.nat and provider.network.existing is None:
            nodes = sum(pool.num_nodes for pool in stack.pools)
            yield "NAT", "cloud-nat-vm", min(nodes, PRICED_NAT_VMS)


def _service_data(each: Service) -> dict[str, Any]:
    known: dict[str, Any] = (
        {"missing": each.price.reason}
        if isinstance(each.price, Missing)
        else {"usdPerServiceHour": _number(each.price.usd_per_hour), **_dated_data(each.price)}
    )
    return {
        "name": each.name,
        "kind": each.kind,
        "number": each.number,
        "usdPerHour": _number(each.usd_per_hour),
        "usdPerMonth": _number(each.usd_per_month),
        **known,
    }


def _storage_data(each: Storage) -> dict[str, Any]:
    return {
        "name": each.name,
        "kind": each.kind,
        "gib": each.gib,
        "usdPerHour": _number(each.usd_per_hour),
        "usdPerMonth": _number(each.usd_per_month),
        **(
            {"missing": each.price.reason}
            if isinstance(each.price, Missing)
            else {"usdPerGibMonth": _number(each.price.usd_per_gib_month), **_dated_data(each.price)}
        ),
    }


def _transfer_data(each: Transfer) -> dict[str, Any]:
    known = {"missing": each.price.reason} if isinstance(each.price, Missing) else _dated_data(each.price)
    return {"dataset": each.dataset, "gib": each.gib, "usd": _number(each.usd), **known}


def _pool_data(cost: PoolCost) -> dict[str, Any]:
    pool, price = cost.pool, cost.price
    known: dict[str, Any] = (
        {"missing": price.reason}
        if isinstance(price, Missing)
        else {"usdPerNodeHour": _number(price.usd_per_hour), **_dated_data(price)}
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


def _dated_data(price: Dated) -> dict[str, Any]:
    return {
        "priceDate": price.source.date.isoformat(),
        "ageDays": price.age_days,
        "stale": price.stale,
        "source": price.source.title,
        "url": price.source.url,
    }


def _dated(price: Dated | Missing) -> tuple[str, str]:
    """Day and age of a price, and its source."""
    if isinstance(price, Missing):
        return "unknown", ""
    return f"{price.source.date}, {price.age_days} d", price.source.title


def _old(name: str, price: Dated) -> str:
    told = f"{name}: the price is {price.age_days} days old, more than {catalog.STALE_AFTER_DAYS}"
    return f"{told}: look it up before you rely on it"


def _number(amount: Decimal | None) -> float | None:
    return None if amount is None else round(float(amount), 4)


def _told(amount: Decimal | None) -> str:
    return "unknown" if amount is None else f"{amount:,.2f}"
