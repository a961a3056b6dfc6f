"""Loads stack and fleet files, and reports all problems at once."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from infra.common.target_registry import target_of
from infra.stackfile.dataset_validators import CHECKS as DATASET_CHECKS
from infra.stackfile.defaults import completed
from infra.stackfile.finding import Check
from infra.stackfile.fleet import Fleet
from infra.stackfile.fleet_validators import CHECKS as FLEET_CHECKS
from infra.stackfile.machine import declared
from infra.stackfile.network_validators import CHECKS as NETWORK_CHECKS
from infra.stackfile.parsing import Sections, parsed
from infra.stackfile.queue_validators import CHECKS as QUEUE_CHECKS
from infra.stackfile.source import FLEET_KEY, STACK_KEY, SpecSource, read
from infra.stackfile.stack import Stack
from infra.stackfile.validators import CHECKS as STACK_CHECKS


def load(path: Path) -> Stack:
    """Read a stack file. Raises InputError with every problem, each with its line."""
    data, source = read(path)
    return parse(data, source, stack_name(path))


def stack_name(path: Path) -> str:
    """Return the stack's name by its file, `Pulumi.<stack>.yaml`; empty for another file."""
    return path.stem.removeprefix("Pulumi.") if path.name.startswith("Pulumi.") else ""


def load_fleet(path: Path) -> Fleet:
    """Read a fleet's file. Raises InputError with every problem, each with its line."""
    data, source = read(path, FLEET_KEY)
    return parse_fleet(data, source)


def parse(data: Any, source: SpecSource | None = None, name: str = "") -> Stack:  # noqa: ANN401
    """Read a stack from plain data, such as the engine's configuration.

    Raises InputError with every problem. What one section gets wrong does not hide what others do:
    the checks between sections run on all sections that are valid by themselves. `name` is the stack's.
    """
    found = completed(data, name)
    source = replace(source or SpecSource(STACK_KEY), derived=found.derived)
    return parsed(Stack, found.data, source, _stack_checks, machines=declared(found.data))


def parse_fleet(data: Any, source: SpecSource | None = None) -> Fleet:  # noqa: ANN401 -- whatever the user wrote
    """Read a fleet from plain data, as `parse` reads a stack."""
    return parsed(Fleet, data, source or SpecSource(FLEET_KEY, key=FLEET_KEY), lambda _: FLEET_CHECKS)


def _stack_checks(sections: Sections) -> Iterator[Check]:
    """Return the checks for every stack and for the target of this one."""
    target = sections.get("target")
    yield from STACK_CHECKS
    yield from DATASET_CHECKS
    yield from NETWORK_CHECKS
    yield from QUEUE_CHECKS
    yield from target_of(target.kind).validators if target else ()
