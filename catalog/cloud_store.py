"""Looks up machines, regions, prices, quotas, preemption notices and versions of Kubernetes."""

from collections.abc import Mapping
from functools import cache
from typing import TypedDict, Unpack

from catalog.cloud_schema import (
    KubernetesFile,
    Machine,
    MachinesFile,
    NoticesFile,
    PriceRow,
    PricesFile,
    PurchaseKind,
    Quota,
    QuotasFile,
    Region,
    RegionsFile,
    ServiceRow,
    SpotNotice,
    StorageRow,
    TrafficRow,
)
from catalog.errors import UnknownNameError
from catalog.schema import Architecture, Cloud
from catalog.store import DATA, load


class MachineFilters(TypedDict, total=False):
    """Filters of `machines`; a machine must pass all that are given."""

    cloud: Cloud
    accelerator: str
    num_accelerators: int
    fabric: str
    architecture: Architecture
    purchase: PurchaseKind
    region: str


@cache
def _machines(cloud: Cloud) -> dict[str, Machine]:
    found = load(f"machines/{cloud}.yaml", MachinesFile)
    return {
        row.name: Machine(cloud=cloud, unlisted_regions=found.unlisted_regions, **vars(row))
        for row in found.machines
    }


@cache
def kubernetes_file() -> KubernetesFile:
    """Return the known versions of Kubernetes."""
    return load("kubernetes.yaml", KubernetesFile)


@cache
def kubernetes_minors(tested: str, target: str = "") -> tuple[str, ...]:
    """Return the minor versions of Kubernetes that a stack may have, the oldest first: `1.34`, `1.35`.

    Those that all pinned operators name, and the one that this release is tested with; of a target that
    offers some alone, these.
    """
    found = kubernetes_file()
    named = set.intersection(*(set(each.minors) for each in found.operators)) | {tested}
    offered = found.offered.get(target)
    common = named & set(offered.minors) if offered else named
    return tuple(sorted(common, key=lambda minor: [int(part) for part in minor.split(".")]))


@cache
def _quotas() -> dict[Cloud, tuple[Quota, ...]]:
    return load("quotas.yaml", QuotasFile).quotas


@cache
def _regions(cloud: Cloud) -> dict[str, Region]:
    rows = load(f"regions/{cloud}.yaml", RegionsFile).regions
    return {row.name: Region(cloud=cloud, **vars(row)) for row in rows}


@cache
def _prices_file(cloud: Cloud) -> PricesFile:
    return load(f"prices/{cloud}.yaml", PricesFile)


def price_rows(cloud: Cloud) -> tuple[PriceRow, ...]:
    """Return every price row of a cloud's machines, old ones included."""
    return _prices_file(cloud).prices


def storage_rows(cloud: Cloud) -> tuple[StorageRow, ...]:
    """Return every price row of a cloud's storage, old ones included."""
    return _prices_file(cloud).storage


def service_rows(cloud: Cloud) -> tuple[ServiceRow, ...]:
    """Return every price row of a cloud's services, old ones included."""
    return _prices_file(cloud).services


def traffic_rows(cloud: Cloud) -> tuple[TrafficRow, ...]:
    """Return every price row of data that leave a cloud's regions, old ones included."""
    return _prices_file(cloud).traffic


@cache
def _notices() -> dict[str, SpotNotice]:
    return load("notices.yaml", NoticesFile).notices


def machine(cloud: Cloud, name: str, path: str = "machine") -> Machine:
    """Return a machine type; UnknownNameError with the nearest name, at `path`, where there is none."""
    known = _machines(cloud)
    if name not in known:
        raise UnknownNameError(f"a machine of {cloud} in the catalogue", name, known, path)
    return known[name]


def find_machine(name: str, cloud: Cloud | None = None) -> Machine | None:
    """Return the machine type of that name, of one cloud or of whichever has it; None where none has."""
    wanted = tuple(each for each in clouds() if cloud in (None, each))
    return next((rows[name] for rows in map(_machines, wanted) if name in rows), None)


def machines(**filters: Unpack[MachineFilters]) -> tuple[Machine, ...]:
    """Return the machines that pass every filter, in the order of the data files.

    `region` and `purchase` drop only what is known not to be offered there or that way.
    """
    wanted = (filters["cloud"],) if "cloud" in filters else clouds()
    return tuple(row for cloud in wanted for row in _machines(cloud).values() if _passes(row, filters))


def _passes(row: Machine, filters: MachineFilters) -> bool:
    if "region" in filters and row.offered_in(filters["region"]) is False:
        return False
    ways = row.ways_in(filters["region"]) if "region" in filters else row.ways
    if "purchase" in filters and row.ways and filters["purchase"] not in ways:
        return False
    exact = {key: value for key, value in filters.items() if key not in ("region", "purchase")}
    return all(getattr(row, key) == value for key, value in exact.items())


def find_quota(cloud: Cloud, family: str, *, is_spot: bool) -> Quota | None:
    """Return the quota that a machine family counts against; None if the catalogue does not know it."""
    purchase = "spot" if is_spot else "on-demand"
    rows = (row for row in _quotas().get(cloud, ()) if row.family == family and purchase in row.purchase)
    return next(rows, None)


@cache
def clouds() -> tuple[Cloud, ...]:
    """Return the targets that sell machines."""
    return tuple(sorted(path.stem for path in (DATA / "machines").glob("*.yaml")))


def region(cloud: Cloud, name: str, path: str = "region") -> Region:
    """Return a region, whatever the case of its name; UnknownNameError with the nearest one where none is."""
    known = _regions(cloud)
    by_lower_case = {key.lower(): row for key, row in known.items()}
    if name.lower() not in by_lower_case:
        raise UnknownNameError(f"a region of {cloud} in the catalogue", name, known, path)
    return by_lower_case[name.lower()]


def regions(cloud: Cloud) -> tuple[Region, ...]:
    """Return every region of a cloud."""
    return tuple(_regions(cloud).values())


_EU = (
    "AT", "BE", "BG", "CY", "CZ", "DE", "DK", "EE", "ES", "FI", "FR", "GR", "HR", "HU",
    "IE", "IT", "LT", "LU", "LV", "MT", "NL", "PL", "PT", "RO", "SE", "SI", "SK",
)  # fmt: skip
UNIONS: Mapping[str, tuple[str, ...]] = {"eu": _EU, "eea": (*_EU, "IS", "LI", "NO")}
"""Unions of countries that a residency rule can name, with their members."""


def notices() -> dict[str, SpotNotice]:
    """Return the preemption notice of each target that gives one."""
    return dict(_notices())


def usable_notice_seconds(target: str) -> int | None:
    """Return the seconds of a target's preemption notice that a job's pods can use; None: there is none."""
    found = _notices().get(target)
    return found.usable_seconds if found else None
