"""Whose law holds in a region: the catalogue's table, read as data.

A name does not say where a region is: AWS's `eu-west-2` is London. A pattern `in:eu` or `in:de` asks the
table.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

PREFIX = "in:"
CATALOGUE = Path(__file__).resolve().parent.parent / "catalog" / "data" / "regions.yaml"


def known() -> frozenset[str]:
    """Countries and unions that a pattern can name."""
    return frozenset().union(*_table().values())


def within(region: str, jurisdiction: str) -> bool:
    """Whether a region, in lower case, is in a country or union; one that the table lacks is in none.

    What is in no cloud has its country for a region: `de`.
    """
    return jurisdiction in _table().get(region, frozenset())


@cache
def _table() -> Mapping[str, frozenset[str]]:
    import yaml  # only where a pattern asks

    data = yaml.safe_load(CATALOGUE.read_text(encoding="utf-8"))
    rows = [row for cloud in data["regions"].values() for row in cloud]
    countries = {row["country"] for row in rows if row.get("country")}.union(*data["unions"].values())
    places = [*({"name": country, "country": country} for country in countries), *rows]
    return {place["name"].lower(): frozenset(_of(place, data["unions"])) for place in places}


def _of(row: Mapping[str, Any], unions: Mapping[str, list[str]]) -> set[str]:
    country = row.get("country")
    joined = {name for name, members in unions.items() if country in members}
    return {*row.get("unions", ()), *joined, *([country.lower()] if country else [])}
