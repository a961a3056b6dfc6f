"""What all parts of the spec share: the base model and the field types."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from ipaddress import IPv4Network
from typing import Annotated

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field
from pydantic_core import PydanticCustomError

_DNS_LABEL = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_MAX_NAME = 40
"""Short enough that prefixes and the suffixes of pods still fit in a DNS label of 63 characters."""


class Spec(BaseModel):
    """What the user writes: frozen, and a key that nobody knows is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)


def wrong(kind: str, allowed: str, fix: str, *below: str) -> PydanticCustomError:
    """Return an error that carries its own `allowed` and `fix` into the Problem.

    `below` leads from the value that is validated to the key that is at fault.
    """
    context = {"allowed": allowed, "fix": fix, "below": below}
    return PydanticCustomError(kind, "wrong value", context)


def matching(kind: str, pattern: str, allowed: str, fix: str) -> AfterValidator:
    """Return a validator of text that must match as a whole, with the words for what does not."""
    compiled = re.compile(pattern)

    def check(value: str) -> str:
        if compiled.fullmatch(value):
            return value
        raise wrong(kind, allowed, fix)

    return AfterValidator(check)


def one_of(names: Callable[[], Iterable[str]]) -> BeforeValidator:
    """Return a validator of a name that must be one of these; they are asked for when a value is read."""

    return BeforeValidator(lambda value: check_one_of(value, names()))


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
    suggestion = re.sub(r"[^a-z0-9]+", "-", value.lower()).strip("-0123456789")
    fix = f"write {suggestion!r}" if suggestion else "choose a name such as 'research'"
    raise wrong("dns_label", "lower-case letters, digits and '-', starting with a letter (RFC 1035)", fix)


def _whole_number(value: object) -> object:
    """Refuse `true` and `"2"`, which a lenient reader would take for numbers."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    raise wrong("whole_number", "a whole number", "write the number without quotes, point or unit")


def _true_or_false(value: object) -> object:
    """Refuse `yes`, `on` and `1`, which YAML 1.1 and 1.2 read differently."""
    if isinstance(value, bool):
        return value
    raise wrong("true_or_false", "true or false", "write true or false, without quotes")


def _ipv4_network(value: object) -> object:
    """Say what is wrong with a network in its own terms (host bits, mask)."""
    try:
        return IPv4Network(str(value))
    except ValueError as error:
        raise wrong("ipv4_network", "an IPv4 network such as 10.64.0.0/16", f"correct it: {error}") from None


Name = Annotated[str, BeforeValidator(_dns_label)]
Integer = Annotated[int, BeforeValidator(_whole_number)]
Boolean = Annotated[bool, BeforeValidator(_true_or_false)]
Cidr = Annotated[IPv4Network, BeforeValidator(_ipv4_network)]
Positive = Annotated[Integer, Field(ge=1)]
NonNegative = Annotated[Integer, Field(ge=0)]
