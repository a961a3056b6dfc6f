"""Base model, field types and error helpers of all parts of the spec."""

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime
from ipaddress import IPv4Network
from typing import Annotated, Any, ClassVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetJsonSchemaHandler,
    Strict,
)
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from catalog.quantities import DURATION, SIZE, units

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME = 40
"""Maximum length of a name: with prefixes and pod suffixes it still fits in a DNS label of 63 characters."""


class Spec(BaseModel):
    """Base of the models of user input: frozen, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True, serialize_by_alias=True)

    DEFAULTED: ClassVar[frozenset[str]] = frozenset()
    """Keys that a file may leave out although the model needs them (infra/stackfile/defaults.py)."""

    @classmethod
    def __get_pydantic_json_schema__(cls, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Require only what has no default."""
        schema = handler(core)
        found = handler.resolve_ref_schema(schema)
        required = [key for key in found.pop("required", ()) if key not in cls.DEFAULTED]
        found |= {"required": required} if required else {}
        return schema

    @classmethod
    def key_of(cls, field: str) -> str:
        """Return the key by which users write a field; a field with a unit in its name has another."""
        return cls.model_fields[field].alias or field


def wrong(kind: str, allowed: str, fix: str, *below: str) -> PydanticCustomError:
    """Return an error whose `allowed` and `fix` replace the default ones in the Problem.

    `below` is the path from the validated value to the wrong key.
    """
    context = {"allowed": allowed, "fix": fix, "below": below}
    return PydanticCustomError(kind, "wrong value", context)


@dataclass(frozen=True, eq=False)
class InSchema:
    """JSON Schema of a validator's input, which pydantic cannot derive from a function."""

    keywords: Mapping[str, Any]

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Add the keywords to what pydantic finds by itself."""
        return {**handler(core), **self.keywords}


@dataclass(frozen=True)
class _Matching(AfterValidator):
    """A string that matches a pattern, which the JSON Schema has too where its dialect can express it."""

    pattern: str = ""

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Leave out a pattern with inline flags, which ECMA-262 lacks."""
        portable = {} if "(?s)" in self.pattern else {"pattern": f"^(?:{self.pattern})$"}
        return {**handler(core), **portable}


@dataclass(frozen=True)
class _OneOf(BeforeValidator):
    """A name among several, which the JSON Schema lists."""

    names: Callable[[], Iterable[str]] = tuple

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {**handler(core), "enum": list(self.names())}


def matching(kind: str, pattern: str, allowed: str, fix: str) -> AfterValidator:
    """Return a validator of text that must match as a whole, with the words for what does not."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value):
            return value
        raise wrong(kind, allowed, fix)

    return _Matching(check, pattern)


def one_of(names: Callable[[], Iterable[str]]) -> BeforeValidator:
    """Return a validator of a name that must be one of these; they are asked for when a value is read."""

    return _OneOf(lambda value: check_one_of(value, names()), names=names)


def check_one_of(value: object, names: Iterable[str]) -> object:
    """Return a value that is one of these names, and raise what a Literal would for any other."""
    known = [repr(name) for name in names]
    if repr(value) in known:
        return value
    expected = " or ".join(part for part in (", ".join(known[:-1]), known[-1]) if part)
    raise PydanticCustomError("literal_error", "Input should be {expected}", {"expected": expected})


def _dns_label(value: object) -> object:
    """Refuse what Kubernetes would refuse, and offer the nearest name that it takes."""
    if not isinstance(value, str):
        return value
    if len(value) > _MAX_NAME:
        raise wrong("dns_label", f"at most {_MAX_NAME} characters", f"shorten it by {len(value) - _MAX_NAME}")
    if _DNS_LABEL.fullmatch(value):
        return value
    suggestion = re.sub(r"[^a-z0-9]+", "-", value.lower()).lstrip("-0123456789").rstrip("-")
    fix = f"write {suggestion!r}" if suggestion else "choose a name such as 'research'"
    raise wrong("dns_label", "lower-case letters, digits and '-', starting with a letter (RFC 1035)", fix)


def _ipv4_network(value: object) -> object:
    """Report a network's problem in the terms of `ipaddress` (host bits, mask)."""
    try:
        return IPv4Network(str(value))
    except ValueError as error:
        raise wrong("ipv4_network", "an IPv4 network such as 10.64.0.0/16", f"correct it: {error}") from None


Name = Annotated[
    str, BeforeValidator(_dns_label), InSchema({"pattern": f"^{_DNS_LABEL.pattern}$", "maxLength": _MAX_NAME})
]
Integer = Annotated[int, Strict()]
"""Whole number, without the values `true`, `"2"` and `2.0`, which a lenient reader would convert."""
Boolean = Annotated[bool, Strict()]
"""Boolean, without the values `yes`, `on` and `1`, which YAML 1.1 and 1.2 read differently."""
Cidr = Annotated[IPv4Network, BeforeValidator(_ipv4_network)]
Positive = Annotated[Integer, Field(ge=1)]
NonNegative = Annotated[Integer, Field(ge=0)]


@dataclass(frozen=True)
class Quantity:
    """Text with a unit, as Kubernetes writes sizes and durations, read as a whole number of `unit`s."""

    unit: str
    """`Gi` or `Ti`; `s`, `m` or `h`."""
    least: int = 1
    most: int | None = None

    def __get_pydantic_core_schema__(self, source: Any, handler: Any) -> CoreSchema:  # noqa: ANN401
        """Read text, and write it back with the unit."""
        as_text = core_schema.plain_serializer_function_ser_schema(self.write)
        return core_schema.no_info_plain_validator_function(self.read, serialization=as_text)

    def __get_pydantic_json_schema__(self, core: CoreSchema, handler: Any) -> dict[str, Any]:  # noqa: ANN401
        """Name the form; bounds are in our error."""
        return {"type": "string", "pattern": f"^{SIZE if self.unit[-1] == 'i' else DURATION}$"}

    def write(self, number: int) -> str:
        """Return so many units as text."""
        return f"{number}{self.unit}"

    def read(self, value: object) -> int:
        """Return the number of units of what the user wrote."""
        most = f"to {self.write(self.most)}" if self.most else "or more"
        allowed = f"{'a size' if self.unit[-1] == 'i' else 'a duration'}, {self.write(self.least)} {most}"
        if isinstance(value, int) and not isinstance(value, bool):
            raise wrong("quantity", allowed, f"write its unit, such as {self.write(value)}")
        try:
            number = units(str(value), self.unit)
        except ValueError as error:
            raise wrong("quantity", allowed, str(error)) from None
        if self.least <= number <= (self.most or number):
            return number
        raise wrong("quantity", allowed, "raise it" if number < self.least else "lower it")


Gibibytes = Annotated[int, Quantity("Gi")]
Tebibytes = Annotated[int, Quantity("Ti")]


_TIME = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}(:[0-9]{2})?(Z|\+00:00| \+0000 UTC)"
"""Format of a UTC time. Without quotes, the engine writes it as Go does (infra/stackfile/scalars.py), and
YAML loaders with timestamps write a space instead of T and an offset instead of Z."""


def _in_one_form(value: str) -> str:
    """Normalize a time to AWS's format; refuse a date that does not exist, such as February 30."""
    try:
        return f"{datetime.fromisoformat(value.removesuffix(' +0000 UTC')):%Y-%m-%dT%H:%M:%SZ}"
    except ValueError as error:
        raise wrong("time", "a valid time", f"correct it: {error}") from None


def _as_text(value: object) -> object:
    """Convert a YAML timestamp back to text."""
    return str(value) if isinstance(value, datetime) else value


Time = Annotated[
    str,
    BeforeValidator(_as_text),
    matching("time", _TIME, "a time in UTC: 2026-12-01T11:30:00Z", "write it with Z at its end"),
    AfterValidator(_in_one_form),
]


def _day(value: object) -> object:
    """Read a date as it is written, and not as a number of seconds."""
    try:
        return value if isinstance(value, date) else date.fromisoformat(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise wrong("day", "a date: 2027-06-30", "write year, month and day") from None


Day = Annotated[date, Strict(), BeforeValidator(_day)]
