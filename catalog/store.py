"""Loads the catalogue's data files, each once and on first use, and looks up their entries."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypedDict, TypeVar, Unpack

import yaml

from catalog.errors import DataError, UnknownNameError
from catalog.reader import read
from catalog.schema import (
    Accelerator,
    AcceleratorsFile,
    Architecture,
    Cloud,
    DataFile,
    Fabric,
    FabricsFile,
    FigureSource,
    KubernetesFile,
    Machine,
    MachinesFile,
    NoticesFile,
    PriceRow,
    PricesFile,
    PurchaseKind,
    Quota,
    QuotasFile,
    Rack,
    Region,
    RegionsFile,
    ServiceRow,
    SpotNotice,
    StorageRow,
    TrafficRow,
)

DATA = Path(__file__).parent / "data"
FileKind = TypeVar("FileKind", bound=DataFile)


class MachineFilters(TypedDict, total=False):
    """Filters of `machines`; a machine must pass all that are given."""

    cloud: Cloud
    accelerator: str
    num_accelerators: int
    fabric: str
    architecture: Architecture
    purchase: PurchaseKind
    region: str


def load(path: str, kind: type[FileKind]) -> FileKind:
    """Read `data/<path>`; DataError where the file breaks its schema."""
    text = (DATA / path).read_text(encoding="utf-8")
    return parse(yaml.load(text, Loader=yaml.CSafeLoader), kind)


def parse(data: Mapping[str, Any], kind: type[FileKind]) -> FileKind:
    """Read a data file; DataError where it breaks its schema."""
    sources = read(dict[str, FigureSource], data.get("sources", {}), "sources")
    rows = {key: _with_sources(value, sources) for key, value in data.items() if key != "sources"}
    return read(kind, {"sources": sources, **rows})


def _with_sources(node: object, sources: Mapping[str, FigureSource]) -> object:
    """Put the sources themselves where rows give their keys."""
    if isinstance(node, list):
        return [_with_sources(item, sources) for item in node]
    if not isinstance(node, dict):
        return node
    return {
        key: _source(value, sources) if key in ("source", "sources") else _with_sources(value, sources)
        for key, value in node.items()
    }


def _source(key: object, sources: Mapping[str, FigureSource]) -> object:
    if isinstance(key, list):
        return [_source(item, sources) for item in key]
    if not isinstance(key, str) or key not in sources:
        raise DataError(f"no such source in the file: {key!r}")
    return sources[key]


@cache
def _machines(cloud: Cloud) -> dict[str, Machine]:
    found = load(f"machines/{cloud}.yaml", MachinesFile)
    return {
        row.name: Machine(cloud=cloud, unlisted_regions=found.unlisted_regions, **vars(row))
        for row in found.machines
    }


@cache
def _accelerators_file() -> AcceleratorsFile:
    return load("accelerators.yaml", AcceleratorsFile)


@cache
def _accelerators() -> dict[str, Accelerator]:
    return {row.name: row for row in _accelerators_file().accelerators}


@cache
def _fabrics_file() -> FabricsFile:
    return load("fabrics.yaml", FabricsFile)


@cache
def _fabrics() -> dict[str, Fabric]:
    return {row.name: row for row in _fabrics_file().fabrics}


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
def _regions_file() -> RegionsFile:
    return load("regions.yaml", RegionsFile)


@cache
def _regions(cloud: Cloud) -> dict[str, Region]:
    rows = _regions_file().regions[cloud]
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


def accelerator(name: str, path: str = "accelerator.model") -> Accelerator:
    """Return an accelerator; UnknownNameError with the nearest name where there is none."""
    if name not in _accelerators():
        raise UnknownNameError("an accelerator of the catalogue", name, _accelerators(), path)
    return _accelerators()[name]


def accelerators() -> tuple[Accelerator, ...]:
    """Return every accelerator, the simulated one of the local target included."""
    return tuple(_accelerators().values())


def accelerator_resources() -> tuple[str, ...]:
    """Return every extended resource by which a pod asks for accelerators."""
    rows = (row.resource for row in _accelerators().values())
    return tuple(dict.fromkeys((*rows, *_accelerators_file().other_resources)))


def accelerator_resource(vendor: str) -> str:
    """Return the extended resource of a vendor's accelerators; KeyError for a vendor without any here."""
    resources: dict[str, str] = {row.vendor: row.resource for row in _accelerators().values()}
    return resources[vendor]


def carries_accelerators(machine_type: str) -> bool:
    """Whether machines of this type carry accelerators, by their name: the catalogue need not have them."""
    return machine_type.startswith(_accelerators_file().machine_prefixes)


def has_fabric_of_one_zone(machine_type: str) -> bool:
    """Whether the fabric of such machines ends at the zone, by their name."""
    return any(fnmatchcase(machine_type, pattern) for pattern in _fabrics_file().machines_of_one_zone)


def find_quota(cloud: Cloud, family: str, *, is_spot: bool) -> Quota | None:
    """Return the quota that a machine family counts against; None if the catalogue does not know it."""
    purchase = "spot" if is_spot else "on-demand"
    rows = (row for row in _quotas().get(cloud, ()) if row.family == family and purchase in row.purchase)
    return next(rows, None)


def find_rack(accelerator: str) -> Rack | None:
    """Return the rack that an accelerator is sold in; None where NVLink ends at the machine."""
    found = _accelerators().get(accelerator)
    return found.rack if found else None


def fabric(name: str, path: str = "fabric") -> Fabric:
    """Return a fabric class; UnknownNameError with the nearest name where there is none."""
    if name not in _fabrics():
        raise UnknownNameError("a fabric class of the catalogue", name, _fabrics(), path)
    return _fabrics()[name]


def fabrics() -> tuple[Fabric, ...]:
    """Return every fabric class, `none` included."""
    return tuple(_fabrics().values())


def clouds() -> tuple[Cloud, ...]:
    """Return the targets that sell machines."""
    return tuple(_regions_file().regions)


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


def unions() -> dict[str, tuple[str, ...]]:
    """Return the unions of countries that a residency rule can name, with their members."""
    return dict(_regions_file().unions)


def notices() -> dict[str, SpotNotice]:
    """Return the preemption notice of each target that gives one."""
    return dict(_notices())


def usable_notice_seconds(target: str) -> int | None:
    """Return the seconds of a target's preemption notice that a job's pods can use; None: there is none."""
    found = _notices().get(target)
    return found.usable_seconds if found else None
