"""Looks up dated prices of machines, storage, services and egress, or returns why there is none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Literal

from catalog import cloud_store, residency
from catalog.cloud_schema import Machine
from catalog.errors import UnknownNameError
from catalog.schema import Cloud, FigureSource

Capacity = Literal["system", "on-demand", "spot", "reserved"]
"""Purchase type of a pool; a system pool is bought on demand."""
HOURS_PER_MONTH = 730
"""Hours of a month: 8,760 hours of a year divided by 12, as in the clouds' own calculators."""
STALE_AFTER_DAYS = 90
"""Age in days from which a price is shown as old."""


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
    """Return the newest price that the catalogue has, or why it has none; never one of another region."""
    if capacity == "reserved":
        return MissingPrice("reserved capacity is priced by its contract")
    kind = "spot" if capacity == "spot" else "on_demand"
    found = [
        (row.source, amount)
        for row in cloud_store.price_rows(machine.cloud)
        if row.machine == machine.name
        and (amount := getattr(row, kind)) is not None
        and _holds_in(machine.cloud, region, row.region)
    ]
    if not found:
        way = kind.replace("_", "-")
        return MissingPrice(f"the catalogue has no {way} price of {machine.name} in {region}")
    source, amount = max(found, key=lambda pair: pair[0].date)
    return Price(usd_per_hour=amount, source=source, age_days=(today - source.date).days)


def _holds_in(cloud: Cloud, region: str, pattern: str) -> bool:
    """Whether a price of `pattern` holds in a region, which the catalogue may lack."""
    try:
        return residency.matches(cloud, region, pattern)
    except UnknownNameError:
        return False


def storage_price(cloud: Cloud, storage: str, region: str, today: date) -> StoragePrice | MissingPrice:
    """Return the newest price of a kind of storage (`s3-standard`), or why there is none."""
    found = [
        row
        for row in cloud_store.storage_rows(cloud)
        if (row.storage, row.region.lower()) == (storage, region.lower())
    ]
    if not found:
        return MissingPrice(f"the catalogue has no price of {storage} in {region}")
    row = max(found, key=lambda each: each.source.date)
    age = (today - row.source.date).days
    return StoragePrice(usd_per_gib_month=row.usd_per_gib_month, source=row.source, age_days=age)


def service_price(cloud: Cloud, service: str, region: str, today: date) -> Price | MissingPrice:
    """Return the newest price of a service (`nat-gateway`), or why there is none."""
    found = [
        row
        for row in cloud_store.service_rows(cloud)
        if (row.service, row.region.lower()) == (service, region.lower())
    ]
    if not found:
        return MissingPrice(f"the catalogue has no price of {service} in {region}")
    row = max(found, key=lambda each: each.source.date)
    return Price(usd_per_hour=row.usd_per_hour, source=row.source, age_days=(today - row.source.date).days)


def egress_price(
    cloud: Cloud, region: str, target: tuple[str, str], today: date
) -> TrafficPrice | MissingPrice:
    """Return the newest price of data from a region to a target (cloud, region), or why there is none."""
    way = "internet" if target[0] != cloud else "same-region" if target[1] == region else target[1]
    found = [row for row in cloud_store.traffic_rows(cloud) if row.region in {region, "*"} and row.to == way]
    if not found:
        return MissingPrice(f"the catalogue has no price of data from {cloud} {region} to {way}")
    row = max(found, key=lambda each: each.source.date)
    age = (today - row.source.date).days
    return TrafficPrice(usd_per_gib=row.usd_per_gib, source=row.source, age_days=age)
