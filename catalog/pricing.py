"""Looks up dated prices of machines, storage, services and egress, or returns why there is none."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal, TypeVar

from catalog import cloud_store, residency
from catalog.cloud_schema import Machine, PriceRow, ServiceRow, StorageRow, TrafficRow
from catalog.errors import UnknownNameError
from catalog.schema import Cloud, FigureSource

Capacity = Literal["on-demand", "spot", "reserved"]
"""Purchase type of a pool."""
HOURS_PER_MONTH = 730
"""Hours of a month: 8,760 hours of a year divided by 12, as in the clouds' own calculators."""
STALE_AFTER_DAYS = 90
"""Age in days from which a price is shown as old."""
Row = TypeVar("Row", PriceRow, StorageRow, ServiceRow, TrafficRow)


@dataclass(frozen=True, kw_only=True)
class Dated:
    """A figure with its source and date."""

    source: FigureSource
    age_days: int

    @property
    def stale(self) -> bool:
        """Whether it is too old to be relied on."""
        return self.age_days > STALE_AFTER_DAYS


@dataclass(frozen=True, kw_only=True)
class Price(Dated):
    """A price of one machine, or of one service that runs by the hour."""

    usd_per_hour: Decimal

    @property
    def usd(self) -> Decimal:
        """USD per hour for one machine or service."""
        return self.usd_per_hour


@dataclass(frozen=True, kw_only=True)
class StoragePrice(Dated):
    """A price of storage."""

    usd_per_gib_month: Decimal

    @property
    def usd(self) -> Decimal:
        """USD per month for one GiB."""
        return self.usd_per_gib_month


@dataclass(frozen=True, kw_only=True)
class TrafficPrice(Dated):
    """A price of data that leave a region."""

    usd_per_gib: Decimal


@dataclass(frozen=True)
class MissingPrice:
    """The catalogue has no price, and why."""

    reason: str


def price(machine: Machine, region: str, capacity: Capacity, today: date) -> Price | MissingPrice:
    """Return the price that the catalogue has, or why it has none; never one of another region."""
    if capacity == "reserved":
        return MissingPrice("reserved capacity is priced by its contract")
    kind: Literal["spot", "on_demand"] = "spot" if capacity == "spot" else "on_demand"
    rows = (row for row in cloud_store.price_rows(machine.cloud) if row.machine == machine.name)
    row = _row_of(machine.cloud, region, (row for row in rows if getattr(row, kind) is not None))
    if row is None:
        way = kind.replace("_", "-")
        return MissingPrice(f"the catalogue has no {way} price of {machine.name} in {region}")
    return Price(usd_per_hour=getattr(row, kind), source=row.source, age_days=_age(row, today))


def _row_of(cloud: Cloud, region: str, rows: Iterable[Row]) -> Row | None:
    """Return the row that holds in a region: its own, else that of the fewest regions; the newest of these.

    None where no row holds.
    """

    def closeness(row: Row) -> tuple[bool, int, date]:
        is_own = row.region.lower() == region.lower()
        return is_own, -len(residency.permitted(cloud, [row.region])), row.source.date

    return max((row for row in rows if _holds_in(cloud, region, row.region)), key=closeness, default=None)


def _holds_in(cloud: Cloud, region: str, pattern: str) -> bool:
    """Whether a price of `pattern` holds in a region, which the catalogue may lack."""
    if pattern.lower() in {region.lower(), "*"}:
        return True
    try:
        return residency.matches(cloud, region, pattern)
    except UnknownNameError:
        return False


def _age(row: Row, today: date) -> int:
    return (today - row.source.date).days


def storage_price(cloud: Cloud, storage: str, region: str, today: date) -> StoragePrice | MissingPrice:
    """Return the price of a kind of storage (`s3-standard`), or why there is none."""
    row = _row_of(cloud, region, (row for row in cloud_store.storage_rows(cloud) if row.storage == storage))
    if row is None:
        return MissingPrice(f"the catalogue has no price of {storage} in {region}")
    age = _age(row, today)
    return StoragePrice(usd_per_gib_month=row.usd_per_gib_month, source=row.source, age_days=age)


def service_price(cloud: Cloud, service: str, region: str, today: date) -> Price | MissingPrice:
    """Return the price of a service (`nat-gateway`), or why there is none."""
    row = _row_of(cloud, region, (row for row in cloud_store.service_rows(cloud) if row.service == service))
    if row is None:
        return MissingPrice(f"the catalogue has no price of {service} in {region}")
    return Price(usd_per_hour=row.usd_per_hour, source=row.source, age_days=_age(row, today))


def egress_price(
    cloud: Cloud, region: str, target: tuple[str, str], today: date
) -> TrafficPrice | MissingPrice:
    """Return the price of data from a region to a target (cloud, region), or why there is none."""
    way = "internet" if target[0] != cloud else "same-region" if target[1] == region else target[1]
    row = _row_of(cloud, region, (row for row in cloud_store.traffic_rows(cloud) if row.to == way))
    if row is None:
        return MissingPrice(f"the catalogue has no price of data from {cloud} {region} to {way}")
    return TrafficPrice(usd_per_gib=row.usd_per_gib, source=row.source, age_days=_age(row, today))
