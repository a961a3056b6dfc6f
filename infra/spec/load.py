"""Loads stack, fleet and job files, and reports all problems at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from pydantic import ValidationError, create_model

from infra.errors import InputError
from infra.spec.base import Spec
from infra.spec.dataset_validators import CHECKS as DATASET_CHECKS
from infra.spec.finding import Check, run
from infra.spec.fleet import Fleet
from infra.spec.fleet_validators import CHECKS as FLEET_CHECKS
from infra.spec.job import JobSpec
from infra.spec.job_validators import CHECKS as JOB_CHECKS
from infra.spec.machine import declared
from infra.spec.network_validators import CHECKS as NETWORK_CHECKS
from infra.spec.problems import problems
from infra.spec.queue_validators import CHECKS as QUEUE_CHECKS
from infra.spec.source import FLEET_KEY, STACK_KEY, SpecSource, read, read_whole
from infra.spec.stack import Stack
from infra.spec.validators import CHECKS as STACK_CHECKS
from infra.targets.registry import target_of

Whole = TypeVar("Whole", bound=Spec)
Sections = Mapping[str, Any]
"""Sections of a file that are valid by themselves."""


def load(path: Path) -> Stack:
    """Read a stack file. Raises InputError with every problem, each with its line."""
    data, source = read(path)
    return parse(data, source)


def load_fleet(path: Path) -> Fleet:
    """Read a fleet's file. Raises InputError with every problem, each with its line."""
    data, source = read(path, FLEET_KEY)
    return parse_fleet(data, source)


def parse(data: Any, source: SpecSource | None = None) -> Stack:  # noqa: ANN401 -- whatever the user wrote
    """Read a stack from plain data, such as the engine's configuration.

    Raises InputError with every problem. What one section gets wrong does not hide what others do:
    the checks between sections run on all sections that are valid by themselves.
    """
    return with_its_job_placed(_whole(Stack, data, source or SpecSource(STACK_KEY), _stack_checks))


def parse_fleet(data: Any, source: SpecSource | None = None) -> Fleet:  # noqa: ANN401 -- whatever the user wrote
    """Read a fleet from plain data, as `parse` reads a stack."""
    return _whole(Fleet, data, source or SpecSource(FLEET_KEY, key=FLEET_KEY), lambda _: FLEET_CHECKS)


def load_job(path: Path, defaults: Mapping[str, Any] | None = None) -> JobSpec:
    """Read a job.yaml; `defaults` stand in for keys that it leaves out. Raises InputError as `load` does."""
    data, source = read_whole(path)
    return parse_job({**(defaults or {}), **data}, source)


def parse_job(data: Any, source: SpecSource | None = None) -> JobSpec:  # noqa: ANN401 -- whatever the user wrote
    """Read a job from plain data, as `parse` reads a stack."""
    return _whole(JobSpec, data, source or SpecSource("job", key="job"), lambda _: JOB_CHECKS)


def _stack_checks(sections: Sections) -> Iterator[Check]:
    """Those of every stack, and those of its target."""
    provider = sections.get("provider")
    yield from STACK_CHECKS
    yield from DATASET_CHECKS
    yield from NETWORK_CHECKS
    yield from QUEUE_CHECKS
    yield from target_of(provider.kind).validators if provider else ()


def _whole(
    model: type[Whole],
    data: Any,  # noqa: ANN401
    source: SpecSource,
    checks: Callable[[Sections], Iterable[Check]],
) -> Whole:
    found, whole = list(source.problems), None
    context = {"machines": declared(data)}
    try:
        whole = model.model_validate(data, context=context)
        sections: Sections = {name: getattr(whole, name) for name in model.model_fields}
    except ValidationError as error:
        found += problems(model, error.errors(), data, source)
        sections = _valid_sections(model, data, context) if isinstance(data, dict) else {}
    found += run(checks(sections), model.model_fields, sections, source)
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


def _valid_sections(model: type[Spec], data: dict[str, Any], context: dict[str, Any]) -> dict[str, Any]:
    """Read each section by itself; those that fail have had their problems reported already."""
    sections = {}
    for name, field in model.model_fields.items():
        key = field.alias or name
        section = create_model(name, __base__=Spec, **{name: (field.annotation, field)})  # type: ignore[call-overload]
        try:
            read_alone = section.model_validate({key: data[key]} if key in data else {}, context=context)
        except ValidationError:
            continue
        sections[name] = getattr(read_alone, name)
    return sections
