"""Validates data with a pydantic model and the checks between its sections; one error lists all problems."""

from collections.abc import Callable, Iterable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError, create_model

from infra.errors import InputError, Problem
from infra.stackfile.base import Spec
from infra.stackfile.finding import Check, run
from infra.stackfile.problems import changed_times, problems
from infra.stackfile.source import SpecSource

if TYPE_CHECKING:
    from catalog import Machine

Whole = TypeVar("Whole", bound=Spec)
Sections = Mapping[str, Any]
"""Sections of a file that are valid by themselves."""


def parsed(
    model: type[Whole],
    data: Any,  # noqa: ANN401
    source: SpecSource,
    checks: Callable[[Sections], Iterable[Check]],
    *,
    of_whole: Callable[[Whole], Iterable[Problem]] = lambda _: (),
    machines: "Mapping[str, Machine]" = MappingProxyType({}),
) -> Whole:
    """Parse user input by its model, and run the checks between its sections.

    `of_whole` finds what is wrong with the whole, if its keys are sound by themselves; `machines` are those
    that the file declares. Raises InputError with every problem.
    """
    found, whole = [*source.problems, *changed_times(model, data, source)], None
    context = {"machines": machines}
    try:
        whole = model.model_validate(data, context=context)
        sections: Sections = {name: getattr(whole, name) for name in model.model_fields}
    except ValidationError as error:
        found += problems(model, error.errors(), data, source)
        sections = _valid_sections(model, data, context) if isinstance(data, dict) else {}
    found += run(checks(sections), model.model_fields, sections, source)
    found += of_whole(whole) if whole is not None else ()
    if whole is None or found:
        raise InputError(found)
    return whole


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
