"""What machines, storage and services cost: the dated prices of the catalogue, read as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).resolve().parent.parent / "catalog" / "data" / "prices"

HOURS_PER_MONTH = 730
"""365 × 24 / 12, as the clouds' calculators count."""


@dataclass(frozen=True)
class Demand:
    """Machines of one kind, and where the plan asks for them."""

    path: str
    """Of the machine type, for messages."""
    machines: tuple[str, ...]
    """All types that the pool may use: the dearest counts."""
    region: str
    number: int
    spot: bool = False


@dataclass(frozen=True)
class Volume:
    """Storage of a size that the plan says, and where it says so."""

    path: str
    """Of the size, for messages."""
    kind: str
    """As the catalogue prices it: `fsx-lustre-250`."""
    region: str
    gib: float


@dataclass(frozen=True)
class Service:
    """What runs by the hour beside the machines, and where the plan asks for it."""

    path: str
    kind: str
    """As the catalogue prices it: `nat-gateway`."""
    region: str
    number: int = 1


Asked = Demand | Volume | Service


@dataclass(frozen=True)
class OwnPrices:
    """Prices of one's own, which go before the catalogue's."""

    machines: Mapping[str, float]
    """Machine type → USD per hour."""
    storage: Mapping[str, float]
    """Kind of storage → USD per GiB-month."""
    services: Mapping[str, float]
    """Kind of service → USD per hour."""


@dataclass(frozen=True)
class Unpriced:
    """A machine type, a kind of storage or a service without a price where it is asked for."""

    path: str
    what: str
    region: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.what}, which has no price{f' in {self.region}' if self.region else ''}"


def usd_per_hour(asked: Asked, own: OwnPrices) -> float | Unpriced:
    """Price what is asked for."""
    if isinstance(asked, Demand):
        return _machines(asked, own.machines)
    return _storage(asked, own.storage) if isinstance(asked, Volume) else _service(asked, own.services)


def _service(service: Service, own: Mapping[str, float]) -> float | Unpriced:
    price = own.get(service.kind) or _catalogued("services", "service", service.kind, service.region.lower())
    if price is None:
        allowed = "a service with a price in that region, or in `service_prices`"
        return Unpriced(service.path, service.kind, service.region, allowed)
    return price * service.number


def _storage(volume: Volume, own: Mapping[str, float]) -> float | Unpriced:
    price = own.get(volume.kind) or _catalogued("storage", "storage", volume.kind, volume.region.lower())
    if price is None:
        allowed = "storage with a price in that region, or in `storage_prices`"
        return Unpriced(volume.path, volume.kind, volume.region, allowed)
    return price * volume.gib / HOURS_PER_MONTH


def _machines(demand: Demand, own: Mapping[str, float]) -> float | Unpriced:
    """The dearest machine, so many times.

    Spot counts at its price where that is known, and at the on-demand price else. No price of another region
    stands in for a missing one.
    """
    dearest = 0.0
    for machine in demand.machines:
        price = own.get(machine) or _catalogue(machine, demand.region.lower(), demand.spot)
        if price is None:
            allowed = "a machine type with a price in that region, or in `prices`"
            return Unpriced(demand.path, machine, demand.region, allowed)
        dearest = max(dearest, price)
    return dearest * demand.number


@cache
def _catalogue(machine: str, region: str, spot: bool) -> float | None:
    """The newest price that the catalogue has."""
    rows = sorted(
        (
            row
            for row in _rows("prices")
            if row["machine"] == machine and _is_in(region, row["region"].lower())
        ),
        key=lambda row: str(row["date"]),
        reverse=True,
    )
    kinds = ("spot", "on_demand") if spot else ("on_demand",)
    return next((float(row[kind]) for kind in kinds for row in rows if row.get(kind)), None)


@cache
def _catalogued(section: str, key: str, kind: str, region: str) -> float | None:
    """The newest price of a kind of storage (per GiB-month) or of a service (per hour)."""
    unit = {"storage": "usd_per_gib_month", "services": "usd_per_hour"}[section]
    rows = [row for row in _rows(section) if (row[key], row["region"]) == (kind, region)]
    return float(max(rows, key=lambda row: str(row["date"]))[unit]) if rows else None


def _is_in(region: str, place: str) -> bool:
    """Whether a price of `place` holds in the region; CoreWeave has one for a whole country (`in:us`)."""
    return region.startswith(place.removeprefix("in:") + "-") if place.startswith("in:") else region == place


@cache
def _rows(section: str) -> tuple[Mapping[str, Any], ...]:
    return tuple(_read(section))


def _read(section: str) -> Iterator[Mapping[str, Any]]:
    import yaml  # only where a ceiling is set

    for file in sorted(CATALOGUE.glob("*.yaml")):
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        for row in data.get(section, ()):
            yield {**row, "date": data["sources"][row["source"]]["date"]}
