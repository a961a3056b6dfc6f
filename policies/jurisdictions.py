"""Decides by the catalogue's table whether a region is within a country, or within a union such as the EU.

A region's name does not contain its country: AWS's `eu-west-2` is London. So the patterns `in:eu` and `in:de`
of a residency are matched by the table.
"""

from collections.abc import Mapping
from functools import cache

import catalog

PREFIX = catalog.JURISDICTION


def known() -> frozenset[str]:
    """Countries and unions that a pattern can name."""
    return frozenset().union(*_table().values())


def is_within(region: str, jurisdiction: str) -> bool:
    """Whether a region, in lower case, is in a country or union; one that the table lacks is in none.

    What is in no cloud has its country for a region: `de`.
    """
    return jurisdiction in _table().get(region, frozenset())


@cache
def _table() -> Mapping[str, frozenset[str]]:
    """The country and unions of each country, and of each region."""
    regions = [region for cloud in catalog.clouds() for region in catalog.regions(cloud)]
    countries = {region.country for region in regions if region.country}.union(*catalog.UNIONS.values())
    table = {country.lower(): _names(catalog.jurisdiction_of(country)) for country in countries}
    return {**table, **{region.name.lower(): _names(catalog.jurisdiction_of(region)) for region in regions}}


def _names(found: catalog.Jurisdiction) -> frozenset[str]:
    return frozenset({*found.unions, *([found.country.lower()] if found.country else [])})
