"""Finds the jurisdiction of a region, and the regions and countries that a residency pattern (`eu-*`,
`in:eu`) permits.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from catalog import cloud_store
from catalog.cloud_schema import Region
from catalog.errors import UnknownNameError
from catalog.schema import Cloud

REGION_VARIABLES = ("AWS_REGION", "AWS_DEFAULT_REGION", "GOOGLE_REGION", "CLOUDSDK_COMPUTE_REGION")
"""Environment variables that tell a program its region."""
ENDPOINT_VARIABLE = r"^AWS_ENDPOINT_URL(_\w+)?$"
REGION = r"[a-z]{2}(?:-[a-z]+)+-\d"
REGION_IN_HOST = rf"[.-]({REGION})\.(?:vpce\.)?(?:amazonaws\.com|api\.aws)"
"""AWS's region in a host's name in lower case: `s3.eu-west-1.amazonaws.com`, `s3-eu-west-1.amazonaws.com`,
`ID.s3.eu-west-1.vpce.amazonaws.com`. Python and RE2 read it alike: plan-time policies and the API server
share it."""
JURISDICTION = "in:"
"""Prefix of a pattern that names a jurisdiction: `in:eu`, `in:de`."""


@dataclass(frozen=True)
class Jurisdiction:
    """A country (None for a region that spans several) and the unions that it belongs to."""

    country: str | None
    unions: tuple[str, ...]

    def is_within(self, name: str) -> bool:
        """Whether it lies in a country (`de`) or a union (`eu`); case does not matter."""
        return name.lower() in {*self.unions, *([self.country.lower()] if self.country else [])}

    def __str__(self) -> str:
        return " / ".join([self.country or "several countries", *(union.upper() for union in self.unions)])


def jurisdiction(cloud: Cloud, region: str) -> Jurisdiction:
    """Return where a region is; UnknownNameError for one that the catalogue lacks."""
    return jurisdiction_of(cloud_store.region(cloud, region))


def jurisdiction_of(region: Region | str) -> Jurisdiction:
    """Return where a region is, or a country in capitals."""
    country, unions = (region, ()) if isinstance(region, str) else (region.country, region.unions)
    joined = (union for union, members in cloud_store.UNIONS.items() if country in members)
    return Jurisdiction(country, tuple(dict.fromkeys((*unions, *joined))))


def matches(cloud: Cloud, region: str, pattern: str) -> bool:
    """Whether a pattern holds for a region.

    A pattern is a region's name with `*` for any part (`eu-*`), or a jurisdiction (`in:eu`, `in:de`). Only
    the second determines the country: AWS's `eu-west-2` is London and `eu-central-2` Zurich.
    UnknownNameError for a region or jurisdiction that the catalogue lacks.
    """
    return _matches(cloud_store.region(cloud, region), pattern)


def _matches(region: Region, pattern: str) -> bool:
    if not pattern.lower().startswith(JURISDICTION):
        return fnmatchcase(region.name.lower(), pattern.lower())
    return jurisdiction_of(region).is_within(_known_jurisdiction(pattern))


def is_country_within(country: str, pattern: str) -> bool:
    """Whether a pattern holds for a country (`DE`) outside of all clouds: jurisdictions alone can.

    UnknownNameError for a jurisdiction that the catalogue lacks.
    """
    if not pattern.lower().startswith(JURISDICTION):
        return False
    name = _known_jurisdiction(pattern)
    return country.lower() == name or country in cloud_store.UNIONS.get(name, ())


def _known_jurisdiction(pattern: str) -> str:
    name = pattern[len(JURISDICTION) :].lower()
    if name not in _jurisdictions():
        raise UnknownNameError("a country or union of the catalogue", name, _jurisdictions(), "residency")
    return name


def _jurisdictions() -> set[str]:
    every = {row.country for cloud in cloud_store.clouds() for row in cloud_store.regions(cloud)}
    return {*cloud_store.UNIONS, *(country.lower() for country in every if country)}


def as_expressions(patterns: Iterable[str]) -> list[str]:
    """Return regular expressions (RE2) of the names that the patterns allow, in lower case, without anchors.

    UnknownNameError for a jurisdiction that the catalogue lacks.
    """
    found: set[str] = set()
    for pattern in patterns:
        if pattern.lower().startswith(JURISDICTION):
            regions = [region for cloud in cloud_store.clouds() for region in permitted(cloud, [pattern])]
            name = _known_jurisdiction(pattern)
            found |= {region.name.lower() for region in regions}
            found |= {country.lower() for country in cloud_store.UNIONS.get(name, (name,))}
        else:
            found.add(pattern.lower().replace(".", "[.]").replace("*", ".*").replace("?", "."))
    return sorted(found)


def permitted(cloud: Cloud, patterns: Iterable[str]) -> tuple[Region, ...]:
    """Return the regions that at least one of the patterns allows: what a residency list really permits."""
    wanted = tuple(patterns)
    return tuple(
        row for row in cloud_store.regions(cloud) if any(_matches(row, pattern) for pattern in wanted)
    )
