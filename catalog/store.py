"""Reads the data files, each once and only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from typing import TypedDict, TypeVar, Unpack, get_args

import yaml

from catalog.schema import (
    Accelerator,
    AcceleratorsFile,
    Architecture,
    Cloud,
    DataFile,
    Fabric,
    FabricsFile,
    Machine,
    MachinesFile,
    Notice,
    NoticesFile,
    PriceRow,
    PricesFile,
    Purchase,
    Rack,
    Region,
    RegionsFile,
    ServiceRow,
    StorageRow,
    TrafficRow,
)
from infra.errors import InputError, Problem

CLOUDS: tuple[Cloud, ...] = get_args(Cloud)
FileModel = TypeVar("FileModel", bound=DataFile)


class MachineFilters(TypedDict, total=False):
    """What `machines` can be asked for; all that are given must hold."""

    cloud: Cloud
    accelerator: str
    num_accelerators: int
    fabric: str
    architecture: Architecture
    purchase: Purchase
    region: str


def load(path: str, model: type[FileModel]) -> FileModel:
    """Read `data/<path>`; pydantic's ValidationError where the file breaks its schema."""
    text = files("catalog").joinpath("data", path).read_text(encoding="utf-8")
    return model.model_validate(yaml.load(text, Loader=yaml.CSafeLoader))


@cache
def _machines(cloud: Cloud) -> dict[str, Machine]:
    rows = load(f"machines/{cloud}.yaml", MachinesFile).machines
    return {row.name: Machine(cloud=cloud, **row.model_dump()) for row in rows}


@cache
def _accelerators() -> dict[str, Accelerator]:
    return {row.name: row for row in load("accelerators.yaml", AcceleratorsFile).accelerators}


@cache
def _fabrics() -> dict[str, Fabric]:
    return {row.name: row for row in load("fabrics.yaml", FabricsFile).fabrics}


@cache
def _regions_file() -> RegionsFile:
    return load("regions.yaml", RegionsFile)


@cache
def _regions(cloud: Cloud) -> dict[str, Region]:
    rows = _regions_file().regions[cloud]
    return {row.name: Region(cloud=cloud, **row.model_dump()) for row in rows}


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
def _notices() -> dict[Cloud, Notice]:
    return load("notices.yaml", NoticesFile).notices


def unknown(what: str, got: str, known: Iterable[str], path: str) -> InputError:
    """Return the error for a name that the catalogue lacks, with the nearest one that it has."""
    names = sorted(known)
    near = get_close_matches(got.lower(), [name.lower() for name in names], n=1, cutoff=0.5)
    meant = next((name for name in names if near and name.lower() == near[0]), None)
    fix = f"did you mean {meant!r}?" if meant else "choose one of these; a new one is a row in the data files"
    return InputError([Problem(path, repr(got), f"{what}: {', '.join(names)}", fix)])


def machine(cloud: Cloud, name: str, path: str = "machine") -> Machine:
    """Return a machine type; InputError with the nearest name, at `path`, where there is none."""
    known = _machines(cloud)
    if name not in known:
        raise unknown(f"a machine of {cloud} in the catalogue", name, known, path)
    return known[name]


def find_machine(name: str) -> Machine | None:
    """Return the machine type of that name, whichever cloud has it; None where none has."""
    return next((rows[name] for rows in map(_machines, CLOUDS) if name in rows), None)


def machines(**filters: Unpack[MachineFilters]) -> tuple[Machine, ...]:
    """Return the machines that pass every filter, in the order of the data files.

    `region` and `purchase` drop only what is known not to be offered there or that way.
    """
    clouds = (filters["cloud"],) if "cloud" in filters else CLOUDS
    return tuple(row for cloud in clouds for row in _machines(cloud).values() if _passes(row, filters))


def _passes(row: Machine, filters: MachineFilters) -> bool:
    if "region" in filters and row.offered_in(filters["region"]) is False:
        return False
    if "purchase" in filters and row.purchase and filters["purchase"] not in row.purchase:
        return False
    exact = {key: value for key, value in filters.items() if key not in ("region", "purchase")}
    return all(getattr(row, key) == value for key, value in exact.items())


def accelerator(name: str, path: str = "accelerator.model") -> Accelerator:
    """Return an accelerator; InputError with the nearest name where there is none."""
    if name not in _accelerators():
        raise unknown("an accelerator of the catalogue", name, _accelerators(), path)
    return _accelerators()[name]


def accelerators() -> tuple[Accelerator, ...]:
    """Return every accelerator, the simulated one of the local target included."""
    return tuple(_accelerators().values())


def find_rack(accelerator: str) -> Rack | None:
    """Return the rack that an accelerator is sold in; None where NVLink ends at the machine."""
    found = _accelerators().get(accelerator)
    return found.rack if found else None


def fabric(name: str, path: str = "fabric") -> Fabric:
    """Return a fabric class; InputError with the nearest name where there is none."""
    if name not in _fabrics():
        raise unknown("a fabric class of the catalogue", name, _fabrics(), path)
    return _fabrics()[name]


def fabrics() -> tuple[Fabric, ...]:
    """Return every fabric class, `none` included."""
    return tuple(_fabrics().values())


def region(cloud: Cloud, name: str, path: str = "region") -> Region:
    """Return a region, whatever the case of its name; InputError with the nearest one where there is none."""
    known = _regions(cloud)
    by_lower_case = {key.lower(): row for key, row in known.items()}
    if name.lower() not in by_lower_case:
        raise unknown(f"a region of {cloud} in the catalogue", name, known, path)
    return by_lower_case[name.lower()]


def regions(cloud: Cloud) -> tuple[Region, ...]:
    """Return every region of a cloud."""
    return tuple(_regions(cloud).values())


def unions() -> dict[str, tuple[str, ...]]:
    """Return the unions of countries that a residency rule can name, with their members."""
    return dict(_regions_file().unions)


def notice(cloud: str) -> Notice | None:
    """Return what a spot machine is told before it is taken; None: unknown, so plan for no notice at all."""
    return _notices().get(cloud) if cloud in CLOUDS else None
