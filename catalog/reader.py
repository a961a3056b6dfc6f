"""Reads plain data into typed, frozen dataclasses: checks keys, types, literals and bounds.

The policies read the catalogue in a process that starts at every preview, so the reader needs nothing but the
standard library: importing pydantic takes a third of the time in which the policies start.
"""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from datetime import date
from decimal import Decimal
from functools import cache
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, cast, get_args, get_origin, get_type_hints

from catalog.errors import DataError

Read = Callable[[Any, str], Any]
"""Function that converts plain data to a value; its text argument is the data's path, for messages."""
RecordType = TypeVar("RecordType")


@dataclass(frozen=True)
class Bound:
    """A condition on a value besides its type, with the description for messages."""

    allowed: str
    holds: Callable[[Any], bool]


def read(kind: type[RecordType], data: object, path: str = "") -> RecordType:
    """Return the data as a record of this kind. Raises DataError with the path of what does not fit."""
    annotation: Any = kind
    return cast(RecordType, _reader(annotation)(data, path))


@cache
def _reader(kind: Any) -> Read:  # noqa: ANN401 -- an annotation
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        return _bounded(_reader(arguments[0]), arguments[1:])
    if origin in (Union, UnionType):
        (inner,) = (each for each in arguments if each is not NoneType)
        return _optional(_reader(inner))
    if origin is Literal:
        return _one_of(arguments)
    if origin is tuple:
        return _tuple(
            [_reader(each) for each in arguments if each is not Ellipsis],
            is_fixed_length=... not in arguments,
        )
    if origin is dict:
        return _mapping(_reader(arguments[0]), _reader(arguments[1]))
    return _record(kind) if is_dataclass(kind) else _plain(kind)


def _as_is(value: Any) -> Any:  # noqa: ANN401 -- whatever it is
    return value


_NUMBERS: Mapping[type, tuple[tuple[type, ...], Callable[[Any], Any]]] = {
    float: ((int, float), float),
    Decimal: ((int, float), lambda value: Decimal(str(value))),
}
"""Number type that also accepts whole numbers → its constructor; Decimal keeps 0.1 USD exact."""


def _plain(kind: type) -> Read:
    taken, make = _NUMBERS.get(kind, ((kind,), _as_is))

    def reader(value: object, path: str) -> object:
        if not isinstance(value, taken) or (isinstance(value, bool) and kind is not bool):
            raise _wrong(path, value, "a date" if kind is date else kind.__name__)
        return make(value)

    return reader


def _bounded(inner: Read, bounds: tuple[Any, ...]) -> Read:
    def reader(value: object, path: str) -> object:
        made = inner(value, path)
        for bound in bounds:
            if isinstance(bound, Bound) and not bound.holds(made):
                raise _wrong(path, value, bound.allowed)
        return made

    return reader


def _optional(inner: Read) -> Read:
    return lambda value, path: None if value is None else inner(value, path)


def _one_of(allowed: tuple[object, ...]) -> Read:
    def reader(value: object, path: str) -> object:
        if value not in allowed:
            raise _wrong(path, value, ", ".join(map(repr, allowed)))
        return value

    return reader


def _tuple(items: list[Read], *, is_fixed_length: bool) -> Read:
    def reader(value: object, path: str) -> object:
        if not isinstance(value, list | tuple) or (is_fixed_length and len(value) != len(items)):
            raise _wrong(path, value, f"a list of {len(items)}" if is_fixed_length else "a list")
        readers = items if is_fixed_length else items * len(value)
        each = enumerate(zip(readers, value, strict=True))
        return tuple(item(entry, f"{path}[{index}]") for index, (item, entry) in each)

    return reader


def _mapping(of_key: Read, of_value: Read) -> Read:
    def reader(value: object, path: str) -> object:
        if not isinstance(value, Mapping):
            raise _wrong(path, value, "a mapping")
        return {of_key(key, path): of_value(entry, f"{path}.{key}") for key, entry in value.items()}

    return reader


def _record(kind: Any) -> Read:  # noqa: ANN401 -- a dataclass
    hints = get_type_hints(kind, include_extras=True)
    readers = {field.name: _reader(hints[field.name]) for field in fields(kind)}
    required = {
        each.name for each in fields(kind) if each.default is MISSING and each.default_factory is MISSING
    }

    def reader(value: object, path: str) -> object:
        if isinstance(value, kind):
            return value
        if not isinstance(value, Mapping):
            raise _wrong(path, value, "a mapping")
        if unknown := [key for key in value if key not in readers]:
            raise _wrong(f"{path}.{unknown[0]}".lstrip("."), "an unknown key", ", ".join(readers))
        if missing := sorted(required - set(value)):
            raise _wrong(f"{path}.{missing[0]}".lstrip("."), "nothing", "a value")
        made = {key: readers[key](each, f"{path}.{key}".lstrip(".")) for key, each in value.items()}
        try:
            return kind(**made)
        except DataError:
            raise
        except ValueError as error:
            raise DataError(f"{path}: {error}") from error

    return reader


def _wrong(path: str, got: object, allowed: str) -> DataError:
    shown = got if isinstance(got, str) else repr(got)
    return DataError(f"{path}: got {shown}; allowed: {allowed}")
