"""What machines cost: the dated prices of the catalogue, read as data."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

CATALOGUE = Path(__file__).resolve().parent.parent / "infra" / "catalog" / "data" / "prices"

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
class Unpriced:
    """A machine type without a price where it is asked for."""

    path: str
    machine: str
    region: str

    def __str__(self) -> str:
        return f"{self.machine}, which has no price{f' in {self.region}' if self.region else ''}"


def usd_per_hour(demand: Demand, own: Mapping[str, float]) -> float | Unpriced:
    """Price a demand, by the `own` prices (machine type → USD per hour) before the catalogue's.

    Spot counts at its price where that is known, and at the on-demand price else. No price of another region
    stands in for a missing one.
    """
    dearest = 0.0
    for machine in demand.machines:
        price = own.get(machine) or _catalogue(machine, demand.region.lower(), demand.spot)
        if price is None:
            return Unpriced(demand.path, machine, demand.region)
        dearest = max(dearest, price)
    return dearest * demand.number


@cache
def _catalogue(machine: str, region: str, spot: bool) -> float | None:
    """The newest price that the catalogue has."""
    rows = sorted(
        (row for row in _rows() if row["machine"] == machine and _is_in(region, row["region"].lower())),
        key=lambda row: str(row["date"]),
        reverse=True,
    )
    kinds = ("spot", "on_demand") if spot else ("on_demand",)
    return next((float(row[kind]) for kind in kinds for row in rows if row.get(kind)), None)


def _is_in(region: str, place: str) -> bool:
    """Whether a price of `place` holds in the region; CoreWeave has one for a whole country (`in:us`)."""
    return region.startswith(place.removeprefix("in:") + "-") if place.startswith("in:") else region == place


@cache
def _rows() -> tuple[Mapping[str, Any], ...]:
    return tuple(_read())


def _read() -> Iterator[Mapping[str, Any]]:
    import yaml  # only where a ceiling is set

    for file in sorted(CATALOGUE.glob("*.yaml")):
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        for row in data["prices"]:
            yield {**row, "date": data["sources"][row["source"]]["date"]}
