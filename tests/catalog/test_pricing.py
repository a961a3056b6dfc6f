"""Look-ups of prices and estimates: old prices are marked, and missing ones reported and never guessed."""

from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalog
from catalog import Machine, MachinePurchase, MissingPrice, Price, PricedPurchase, cloud_store
from catalog.cloud_schema import PriceRow, ServiceRow, StorageRow, TrafficRow
from catalog.pricing import Capacity
from catalog.schema import FigureSource

P5EN = catalog.machine("aws", "p5en.48xlarge")
P5E = catalog.machine("aws", "p5e.48xlarge")
SEEN = date(2026, 8, 6)
"""Date of the catalogue's price of a p5en in us-east-2."""

NARROWING = ("*", "EU-*", "in:no", "EU-NORTH-02A")
"""Patterns that hold in CoreWeave's EU-NORTH-02A, those of the most regions first; Norway has no other."""


def pool(
    name: str,
    machine: Machine,
    *,
    region: str = "us-east-2",
    capacity: Capacity = "on-demand",
    nodes: int = 2,
) -> MachinePurchase:
    return MachinePurchase(
        name=name, cloud=machine.cloud, region=region, machine=machine.name, capacity=capacity, number=nodes
    )


def known(machine: Machine, region: str, capacity: Capacity, today: date) -> Price:
    price = catalog.price(machine, region, capacity, today)
    assert isinstance(price, Price)
    return price


def monthly(cost: PricedPurchase) -> Decimal:
    assert cost.usd_per_month is not None
    return cost.usd_per_month


@pytest.mark.parametrize(("age", "stale"), [(0, False), (90, False), (91, True), (400, True)])
def test_a_price_is_stale_from_its_91st_day_on_and_still_shown(age: int, stale: bool) -> None:
    price = known(P5EN, "us-east-2", "spot", SEEN + timedelta(days=age))
    assert (price.usd_per_hour, price.age_days, price.stale) == (Decimal("26.57"), age, stale)
    assert price.source.date == SEEN


@pytest.mark.parametrize(("capacity", "usd"), [("system", "63.3"), ("on-demand", "63.3"), ("spot", "26.57")])
def test_each_capacity_has_its_price(capacity: Capacity, usd: str) -> None:
    assert known(P5EN, "us-east-2", capacity, SEEN).usd_per_hour == Decimal(usd)


@pytest.mark.parametrize(
    ("machine", "region", "capacity", "reason"),
    [
        (P5E, "us-east-2", "on-demand", "no on-demand price of p5e.48xlarge in us-east-2"),
        (P5EN, "us-east-1", "spot", "no spot price of p5en.48xlarge in us-east-1"),
        (P5EN, "us-west-2", "on-demand", "no on-demand price of p5en.48xlarge in us-west-2"),
        (P5EN, "us-east-2", "reserved", "priced by its contract"),
    ],
)
def test_a_price_that_is_not_known_is_missing_with_a_reason_and_no_other_price_is_taken(
    machine: Machine, region: str, capacity: Capacity, reason: str
) -> None:
    missing = catalog.price(machine, region, capacity, SEEN)
    assert isinstance(missing, MissingPrice)
    assert reason in missing.reason


def test_the_newest_of_several_prices_is_used() -> None:
    machine = catalog.machine("azure", "Standard_ND96isr_H100_v5")
    assert known(machine, "eastus", "on-demand", date(2026, 11, 21)).source.date == date(2026, 11, 9)


def test_a_price_for_a_country_applies_in_each_of_its_regions_and_nowhere_else() -> None:
    machine = catalog.machine("coreweave", "gd-8xh200ib-i128")
    assert known(machine, "RNO2A", "spot", SEEN).usd_per_hour == Decimal("20.93")
    assert known(machine, "us-east-04a", "spot", SEEN).usd_per_hour == Decimal("20.93")
    assert isinstance(catalog.price(machine, "EU-SOUTH-03B", "spot", SEEN), MissingPrice)


@pytest.mark.parametrize("narrowest", range(len(NARROWING)))
def test_the_price_for_the_fewest_regions_is_used_though_wider_ones_are_newer(
    narrowest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In each kind of price: machines, storage, services and traffic."""
    dated = [
        FigureSource(title="list", url="https://prices.example", date=SEEN - age * timedelta(days=1))
        for age in range(narrowest + 1)
    ]
    rows: list[dict[str, Any]] = [
        {"region": pattern, "source": source} for pattern, source in zip(NARROWING, dated, strict=False)
    ]
    machine, region = catalog.machine("coreweave", "gd-8xh200ib-i128"), NARROWING[-1]
    made = {
        "price_rows": [PriceRow(machine=machine.name, on_demand=Decimal(7), **row) for row in rows],
        "storage_rows": [StorageRow(storage="disk", usd_per_gib_month=Decimal(7), **row) for row in rows],
        "service_rows": [ServiceRow(service="nat", usd_per_hour=Decimal(7), **row) for row in rows],
        "traffic_rows": [TrafficRow(to="internet", usd_per_gib=Decimal(7), **row) for row in rows],
    }
    for name, found in made.items():
        monkeypatch.setattr(cloud_store, name, lambda _, found=found: found)
    found = [
        catalog.price(machine, region, "on-demand", SEEN),
        catalog.storage_price("coreweave", "disk", region, SEEN),
        catalog.service_price("coreweave", "nat", region, SEEN),
        catalog.egress_price("coreweave", region, ("gcp", "us-east1"), SEEN),
    ]
    assert [getattr(price, "age_days", price) for price in found] == [narrowest] * len(found)


def test_an_estimate_adds_known_prices_and_lists_missing_ones() -> None:
    today = SEEN + timedelta(days=91)
    small = catalog.machine("gcp", "a3-ultragpu-8g")
    pools = [
        pool("spot", P5EN, capacity="spot", nodes=4),
        pool("missing", P5E),
        pool("fresh", small, region="us-central1", nodes=1),
    ]
    estimate = catalog.estimate(pools, today)
    assert estimate.usd_per_hour == 4 * Decimal("26.57") + Decimal("83.49")
    assert estimate.usd_per_month == estimate.usd_per_hour * 730
    assert [cost.name for cost in estimate.missing] == ["missing"]
    assert [cost.name for cost in estimate.stale] == ["spot"]
    assert [cost.usd_per_hour is None for cost in estimate.costs] == [False, True, False]
    assert estimate.costs[1].usd_per_month is None


@given(
    sizes=st.lists(st.integers(0, 500), max_size=8),
    capacity=st.sampled_from(["on-demand", "spot"]),
    days=st.integers(-30, 3000),
)
def test_an_estimate_is_the_sum_of_its_pools_any_day(sizes: list[int], capacity: Capacity, days: int) -> None:
    pools = [pool(f"p{i}", P5EN, capacity=capacity, nodes=size) for i, size in enumerate(sizes)]
    estimate = catalog.estimate(pools, SEEN + timedelta(days=days))
    each = known(P5EN, "us-east-2", capacity, SEEN).usd_per_hour
    assert estimate.usd_per_hour == each * sum(sizes)
    assert estimate.usd_per_month == sum(map(monthly, estimate.costs), Decimal(0))
    assert len(estimate.stale) == (len(pools) if days > 90 else 0)
