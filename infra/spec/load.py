"""Read a stack or a fleet: every problem found at once, before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, create_model

from infra.errors import InputError, Problem
from infra.spec.base import Spec
from infra.spec.finding import run
from infra.spec.fleet import Fleet
from infra.spec.fleet_validators import CHECKS as FLEET_CHECKS
from infra.spec.problems import problems
from infra.spec.source import FLEET_KEY, STACK_KEY, Source, read
from infra.spec.stack import Stack
from infra.spec.validators import cross_check

Whole = TypeVar("Whole", bound=Spec)
CrossCheck = Callable[[Mapping[str, Any], Source], list[Problem]]


def load(path: Path) -> Stack:
    """Read a stack file. Raises InputError with every problem, each with its line."""
    data, source = read(path)
    return parse(data, source)


def load_fleet(path: Path) -> Fleet:
    """Read a fleet's file. Raises InputError with every problem, each with its line."""
    data, source = read(path, FLEET_KEY)
    return parse_fleet(data, source)


def parse(data: Any, source: Source | None = None) -> Stack:  # noqa: ANN401 -- whatever the user wrote
    """Read a stack from plain data, such as the engine's configuration.

    Raises InputError with every problem. What one section gets wrong does not hide what others do:
    the checks between sections run on all sections that are valid by themselves.
    """
    return with_its_job_placed(_whole(Stack, data, source or Source(STACK_KEY), cross_check))


def parse_fleet(data: Any, source: Source | None = None) -> Fleet:  # noqa: ANN401 -- whatever the user wrote
    """Read a fleet from plain data, as `parse` reads a stack."""

    def check(sections: Mapping[str, Any], source: Source) -> list[Problem]:
        return run(FLEET_CHECKS, sections, source)

    return _whole(Fleet, data, source or Source(FLEET_KEY, key=FLEET_KEY), check)


def _whole(model: type[Whole], data: Any, source: Source, check: CrossCheck) -> Whole:  # noqa: ANN401
    found, whole = list(source.problems), None
    try:
        whole = model.model_validate(data)
        sections: Mapping[str, Any] = {name: getattr(whole, name) for name in model.model_fields}
    except ValidationError as error:
        found += problems(model, error.errors(), data, source)
        sections = _valid_sections(model, data) if isinstance(data, dict) else {}
    found += check(sections, source)
    if whole is None or found:
        raise InputError(found)
    return whole


def with_its_job_placed(stack: Stack) -> Stack:
    """Return the stack with the runtime and queue that its job's needs come to, as if they were written."""
    placed = stack.placement
    if stack.job is None or placed is None:
        return stack
    job = stack.job.model_copy(update={"runtime": placed.runtime, "queue": placed.queue})
    return stack.model_copy(update={"job": job})


def _valid_sections(model: type[Spec], data: dict[str, Any]) -> dict[str, Any]:
    """Read each section by itself; those that fail have had their problems reported already."""
    sections = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        section = create_model(name, __base__=Spec, **{name: (field.annotation, field)})  # type: ignore[call-overload]
        try:
            read_alone = section.model_validate({key: data[key]} if key in data else {})
        except ValidationError:
            continue
        sections[name] = getattr(read_alone, name)
    return sections
