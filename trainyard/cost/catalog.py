"""`trainyard catalog`: lists machines, regions, fabrics or prices that match the filters, as a table, JSON or
Markdown.
"""

import json
import sys
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

from rich.console import Console

import catalog
from catalog import Machine, MachineFilters, MissingPrice, Price, UnknownNameError
from engine.tables import PlainTable
from infra.errors import InputError, Problem
from trainyard.forms import CatalogPart, ReportForm


def rows_of(what: CatalogPart, filters: MachineFilters, today: date) -> list[dict[str, Any]]:
    """Return a part of the catalogue as rows; unknown values are null, and never guessed.

    Raises InputError for an accelerator, fabric or region that the catalogue lacks.
    """
    try:
        _check(filters)
    except UnknownNameError as error:
        raise _wrong(error) from None
    if what == "regions":
        clouds = (filters["cloud"],) if "cloud" in filters else catalog.clouds()
        return [
            {"cloud": cloud, "name": each.name, "location": each.location, "country": each.country}
            for cloud in clouds
            for each in catalog.regions(cloud)
        ]
    if what == "fabrics":
        used = {machine.fabric for machine in catalog.machines(**filters)}
        return [
            {"name": each.name, "title": each.title, "resources": each.pod_resources}
            for each in catalog.fabrics()
            if not filters or each.name in used
        ]
    found = catalog.machines(**filters)
    return [_machine(each) for each in found] if what == "machines" else list(_prices(found, filters, today))


def show_catalog(what: CatalogPart, filters: MachineFilters, form: ReportForm, console: Console) -> None:
    """Print a part of the catalogue."""
    rows = rows_of(what, filters, datetime.now(UTC).date())
    if form == "json":
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
        return
    if not rows:
        console.print("The catalogue has no such entry.", highlight=False)
        return
    columns = list(rows[0])
    if form == "markdown":
        lines = [columns, ["---"] * len(columns), *([_text(row[key]) for key in columns] for row in rows)]
        sys.stdout.write("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
        return
    table = PlainTable(*columns)
    for row in rows:
        table.add_row(*(_text(row[key]) for key in columns))
    table.show(console)


def filters_of(**given: str) -> MachineFilters:
    """Return the filters that were given a value. Raises InputError for a cloud that the catalogue lacks."""
    cloud = given.get("cloud")
    if cloud and cloud not in catalog.clouds():
        raise _wrong(UnknownNameError("a cloud of the catalogue", cloud, catalog.clouds(), "--cloud"))
    filters: Any = {key: value for key, value in given.items() if value}
    matching: MachineFilters = filters
    return matching


def _check(filters: MachineFilters) -> None:
    """Refuse names that the catalogue does not have: an empty answer would look like a fact."""
    if "accelerator" in filters:
        catalog.accelerator(filters["accelerator"], "--accelerator")
    if "fabric" in filters:
        catalog.fabric(filters["fabric"], "--fabric")
    if "region" in filters and "cloud" in filters:
        catalog.region(filters["cloud"], filters["region"], "--region")


def _wrong(error: UnknownNameError) -> InputError:
    return InputError([Problem(error.path, error.got, error.allowed, error.fix)])


def _machine(machine: Machine) -> dict[str, Any]:
    nics = machine.nics
    return {
        "cloud": machine.cloud,
        "name": machine.name,
        "accelerators": f"{machine.num_accelerators} × {machine.accelerator}"
        if machine.accelerator
        else "none",
        "vcpus": machine.vcpus,
        "memory GiB": machine.memory_gib,
        "local NVMe GiB": machine.local_nvme_gib,
        "NICs": f"{nics.count} × {nics.gbps:g} Gb/s" if nics else None,
        "fabric": machine.fabric,
        "bought": list(machine.purchase) or None,
    }


def _prices(machines: Iterable[Machine], filters: MachineFilters, today: date) -> Iterable[dict[str, Any]]:
    """Prices of machines in a region, or in every region that one is known of."""
    for machine in machines:
        for region in _priced_regions(machine, filters):
            for capacity in ("on-demand", "spot"):
                found = catalog.price(machine, region, capacity, today)
                if isinstance(found, MissingPrice) and "region" not in filters:
                    continue
                yield _price(machine, region, capacity, found)


def _priced_regions(machine: Machine, filters: MachineFilters) -> list[str]:
    if "region" in filters:
        return [filters["region"]]
    return [each.name for each in catalog.regions(machine.cloud)]


def _price(machine: Machine, region: str, capacity: str, found: Price | MissingPrice) -> dict[str, Any]:
    named = {"cloud": machine.cloud, "machine": machine.name, "region": region, "capacity": capacity}
    if isinstance(found, MissingPrice):
        return {**named, "USD/h": None, "of": None, "days": None, "remark": found.reason}
    remark = f"older than {catalog.STALE_AFTER_DAYS} days" if found.stale else ""
    return {
        **named,
        "USD/h": float(found.usd_per_hour),
        "of": found.source.date.isoformat(),
        "days": found.age_days,
        "remark": remark,
    }


def _text(value: Any) -> str:  # noqa: ANN401 -- a cell of a table
    if value is None:
        return "unknown"
    if isinstance(value, dict):
        return ", ".join(f"{key}: {each}" for key, each in value.items()) or "none"
    return ", ".join(value) if isinstance(value, list) else str(value)
