"""Data residency: the jurisdiction of a region, and the regions that a residency list permits."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalog
from catalog import Cloud, UnknownNameError
from tests.tables import table

REGIONS = [(cloud, row.name) for cloud in catalog.clouds() for row in catalog.regions(cloud)]
EU_NAMES: dict[Cloud, str] = {"aws": "eu-*", "gcp": "europe-*", "coreweave": "EU-*"}


@pytest.mark.parametrize(("cloud", "region", "country", "in_eu"), table(__file__, "places"))
def test_a_region_is_in_a_country_and_a_union_whatever_its_name(
    cloud: Cloud, region: str, country: str | None, in_eu: bool
) -> None:
    where = catalog.jurisdiction(cloud, region)
    assert where.country == country
    assert where.is_within("eu") is in_eu
    assert where.is_within("EU") is in_eu


@pytest.mark.parametrize(("cloud", "pattern"), EU_NAMES.items())
def test_a_pattern_lets_data_out_of_the_union_and_a_jurisdiction_does_not(cloud: Cloud, pattern: str) -> None:
    by_name = {row.name for row in catalog.permitted(cloud, [pattern])}
    by_law = {row.name for row in catalog.permitted(cloud, ["in:eu"])}
    assert {row for row in by_name if not catalog.jurisdiction(cloud, row).is_within("eu")}
    assert all(catalog.jurisdiction(cloud, row).is_within("eu") for row in by_law)


def test_norway_is_in_the_eea_and_not_in_the_eu() -> None:
    where = catalog.jurisdiction("azure", "norwayeast")
    assert (where.is_within("eea"), where.is_within("eu"), where.is_within("no")) == (True, False, True)
    assert str(where) == "NO / EEA"


@given(region=st.sampled_from(REGIONS))
def test_every_region_matches_its_own_name_its_country_and_a_star(region: tuple[Cloud, str]) -> None:
    cloud, name = region
    where = catalog.jurisdiction(cloud, name)
    assert catalog.matches(cloud, name, name)
    assert catalog.matches(cloud, name.upper(), name.lower())
    assert catalog.matches(cloud, name, "*")
    assert all(catalog.matches(cloud, name, f"in:{union}") for union in where.unions)
    assert where.country is None or catalog.matches(cloud, name, f"in:{where.country}")


@given(region=st.sampled_from(REGIONS))
def test_no_region_is_in_two_countries(region: tuple[Cloud, str]) -> None:
    cloud, name = region
    countries = {row.country for known in catalog.clouds() for row in catalog.regions(known) if row.country}
    assert sum(catalog.matches(cloud, name, f"in:{country}") for country in countries) <= 1


def test_an_empty_list_permits_nothing() -> None:
    assert catalog.permitted("aws", []) == ()


def test_an_unknown_jurisdiction_is_refused_and_not_taken_for_an_empty_one() -> None:
    with pytest.raises(UnknownNameError, match="did you mean 'eea'"):
        catalog.matches("aws", "eu-north-1", "in:eeaa")


def test_a_region_that_the_catalogue_lacks_is_refused() -> None:
    with pytest.raises(UnknownNameError, match="region of aws"):
        catalog.jurisdiction("aws", "atlantis-1")


@pytest.mark.parametrize("patterns", [("in:eu",), ("in:de", "us-*"), ("EU-NORTH-0?A", "a.b"), ()])
def test_expressions_of_the_api_server_match_as_patterns_do(patterns: tuple[str, ...]) -> None:
    """The expressions are in RE2's syntax, of which Python's is a superset here."""
    expressions = [re.compile(each) for each in catalog.as_expressions(patterns)]
    for cloud, region in REGIONS:
        by_pattern = any(catalog.matches(cloud, region, pattern) for pattern in patterns)
        assert any(each.fullmatch(region.lower()) for each in expressions) is by_pattern, region
    with pytest.raises(UnknownNameError):
        catalog.as_expressions(["in:atlantis"])
