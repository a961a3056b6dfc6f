"""Computes what a stack costs from its purchases and the catalogue's prices. A purchase without a price is
listed, and is not in the totals.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any

from catalog import cloud_store
from catalog.pricing import (
    HOURS_PER_MONTH,
    Capacity,
    MissingPrice,
    Price,
    StoragePrice,
    price,
    service_price,
    storage_price,
)
from catalog.schema import Cloud

Stack = Mapping[str, Any]
"""The content of a stack file as plain data, which is also the component's input."""


@dataclass(frozen=True, kw_only=True)
class BasePurchase:
    """Base class of purchases: name, cloud, region and path."""

    name: str
    """Purpose of the purchase: a pool's name, `filesystem`, `NAT`."""
    cloud: Cloud
    region: str
    """Region of the price, or the zone where prices differ by zone."""
    path: str = ""
    """Path of the amount in the stack or in the resource."""


@dataclass(frozen=True, kw_only=True)
class MachinePurchase(BasePurchase):
    """Machines of one type, capacity and region."""

    machine: str
    capacity: Capacity
    number: int


@dataclass(frozen=True, kw_only=True)
class StoragePurchase(BasePurchase):
    """Storage of one kind."""

    kind: str
    """Kind of storage in the catalogue's prices: `fsx-lustre-250`."""
    gib: int | Decimal | None
    """Size in GiB; None for storage that grows with its content."""


@dataclass(frozen=True, kw_only=True)
class ServicePurchase(BasePurchase):
    """Services that are charged by the hour besides machines."""

    kind: str
    """Kind of service in the catalogue's prices: `nat-gateway`."""
    number: int = 1


Purchase = MachinePurchase | StoragePurchase | ServicePurchase


@dataclass(frozen=True)
class TargetPurchases:
    """Purchases of a target's stacks."""

    purchases: Callable[[Stack], Iterator[Purchase]]
    """Function that returns a stack's purchases in the order of its file: machines, storage, services."""
    nothing_bought: str = ""
    """Reason why stacks of this target buy nothing: `runs on this host`; empty if they buy something."""


def usd_per_hour(purchase: Purchase, rate: Decimal) -> Decimal | None:
    """Return the cost of a purchase per hour, given its unit price; None for storage without a fixed size."""
    if isinstance(purchase, StoragePurchase):
        return None if purchase.gib is None else rate * purchase.gib / HOURS_PER_MONTH
    return rate * purchase.number


@dataclass(frozen=True)
class PricedPurchase:
    """A purchase and its price."""

    purchase: Purchase
    price: Price | StoragePrice | MissingPrice

    @property
    def name(self) -> str:
        """Purpose of the purchase."""
        return self.purchase.name

    @property
    def usd_per_hour(self) -> Decimal | None:
        """Cost for an hour; None where the price or the size is not known."""
        if isinstance(self.price, MissingPrice):
            return None
        return usd_per_hour(self.purchase, self.price.usd)

    @property
    def usd_per_month(self) -> Decimal | None:
        """Cost for a month of 730 hours, likewise."""
        if isinstance(self.price, MissingPrice):
            return None
        if isinstance(self.purchase, StoragePurchase):  # priced by the month: exact
            return None if self.purchase.gib is None else self.price.usd * self.purchase.gib
        return self.price.usd * self.purchase.number * HOURS_PER_MONTH


@dataclass(frozen=True)
class Estimate:
    """Cost of a list of purchases; the totals cover only those with a known price."""

    costs: tuple[PricedPurchase, ...]

    @property
    def usd_per_hour(self) -> Decimal:
        """Sum of the known costs."""
        return sum((cost.usd_per_hour for cost in self.costs if cost.usd_per_hour is not None), Decimal(0))

    @property
    def usd_per_month(self) -> Decimal:
        """The same for 730 hours."""
        return self.usd_per_hour * HOURS_PER_MONTH

    @property
    def missing(self) -> tuple[PricedPurchase, ...]:
        """Purchases without a price; the totals do not include them."""
        return tuple(cost for cost in self.costs if isinstance(cost.price, MissingPrice))

    @property
    def stale(self) -> tuple[PricedPurchase, ...]:
        """Purchases whose price is too old to be relied on."""
        return tuple(
            cost for cost in self.costs if not isinstance(cost.price, MissingPrice) and cost.price.stale
        )


def estimate(purchases: Iterable[Purchase], today: date) -> Estimate:
    """Price a list of purchases as of a day."""
    return Estimate(tuple(PricedPurchase(purchase, price_of(purchase, today)) for purchase in purchases))


def price_of(purchase: Purchase, today: date) -> Price | StoragePrice | MissingPrice:
    """Return the newest price of one, or why there is none."""
    if isinstance(purchase, StoragePurchase):
        return storage_price(purchase.cloud, purchase.kind, purchase.region, today)
    if isinstance(purchase, ServicePurchase):
        return service_price(purchase.cloud, purchase.kind, purchase.region, today)
    return _price_of_machine(purchase, purchase.capacity, today)


def highest_price_of(purchase: Purchase, today: date) -> Price | StoragePrice | MissingPrice:
    """Return the highest possible price of a purchase.

    Spot without a known spot price, and reservations, whose contracts are unknown, count as on demand.
    A missing price is not replaced by another region's.
    """
    found = price_of(purchase, today)
    if isinstance(purchase, MachinePurchase) and isinstance(found, MissingPrice):
        return _price_of_machine(purchase, "on-demand", today)
    return found


def _price_of_machine(purchase: MachinePurchase, capacity: Capacity, today: date) -> Price | MissingPrice:
    machine = cloud_store.find_machine(purchase.machine, purchase.cloud)
    if machine is None:
        return MissingPrice(f"{purchase.machine} is not a machine of {purchase.cloud} in the catalogue")
    return price(machine, purchase.region, capacity, today)
