"""Loads the catalogue's data files, each once and on first use, and looks up accelerators and fabrics."""

from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import yaml

from catalog.errors import DataError, UnknownNameError
from catalog.reader import read
from catalog.schema import Accelerator, AcceleratorsFile, DataFile, Fabric, FabricsFile, FigureSource, Rack

DATA = Path(__file__).parent / "data"
FileKind = TypeVar("FileKind", bound=DataFile)


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
    """Return every fabric class, `tcp` included."""
    return tuple(_fabrics().values())
