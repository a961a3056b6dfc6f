"""Read a stack: every problem found at once, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import ValidationError, create_model

from infra.errors import InputError
from infra.spec.base import Spec
from infra.spec.checks import cross_check
from infra.spec.problems import problems
from infra.spec.source import STACK_KEY, Source, read
from infra.spec.stack import Stack


def load(path: Path) -> Stack:
    """Read a stack file. Raises InputError with every problem, each with its line."""
    data, source = read(path)
    return parse(data, source)


def parse(data: Any, source: Source | None = None) -> Stack:  # noqa: ANN401 -- whatever the user wrote
    """Read a stack from plain data, such as the engine's configuration.

    Raises InputError with every problem. What one section gets wrong does not hide what others do:
    the checks between sections run on all sections that are valid by themselves.
    """
    source = source or Source(STACK_KEY)
    found = list(source.problems)
    try:
        stack = Stack.model_validate(data)
        sections: Mapping[str, Any] = {name: getattr(stack, name) for name in Stack.model_fields}
    except ValidationError as error:
        found += problems(error.errors(), data, source)
        sections = _valid_sections(data) if isinstance(data, dict) else {}
    found += cross_check(sections, source)
    if found:
        raise InputError(found)
    return with_its_job_placed(stack)


def with_its_job_placed(stack: Stack) -> Stack:
    """Return the stack with the runtime and queue that its job's needs come to, as if they were written."""
    placed = stack.placement
    if stack.job is None or placed is None:
        return stack
    job = stack.job.model_copy(update={"runtime": placed.runtime, "queue": placed.queue})
    return stack.model_copy(update={"job": job})


def _valid_sections(data: dict[str, Any]) -> dict[str, Any]:
    """Read each section by itself; those that fail have had their problems reported already."""
    sections = {}
    for name, field in Stack.model_fields.items():
        key = field.alias or name
        section = create_model(name, __base__=Spec, **{name: (field.annotation, field)})  # type: ignore[call-overload]
        try:
            read_alone = section.model_validate({key: data[key]} if key in data else {})
        except ValidationError:
            continue
        sections[name] = getattr(read_alone, name)
    return sections
