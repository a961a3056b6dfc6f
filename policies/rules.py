"""Checks that many policies share; each yields violations of one property."""

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import cache, wraps
from pathlib import Path
from typing import Any, ParamSpec

import yaml

from policies.policy import Resource, Violation
from policies.region import canonical
from policies.unknowns import UNKNOWN, PropertyBlock, UnknownProperty, Value

SETTINGS: Mapping[str, Any] = yaml.load(
    (Path(__file__).parent / "settings.yaml").read_text(encoding="utf-8"), Loader=yaml.CSafeLoader
)
"""Policy → what it refuses or asks for, as data."""
NOTHING = "nothing"
NOT_KNOWN = "a value not known at preview"
Check = ParamSpec("Check")


def independent(check: Callable[Check, Iterable[Violation]]) -> Callable[Check, Iterator[Violation]]:
    """Wrap a check so that those after it run even if it needs a value that is not known at preview."""

    @wraps(check)
    def wrapped(*args: Check.args, **kwargs: Check.kwargs) -> Iterator[Violation]:
        try:
            yield from check(*args, **kwargs)
        except UnknownProperty as unknown:
            yield Violation(unknown.path, NOT_KNOWN, "", is_deferred=True)

    return wrapped


@independent
def must_equal(props: PropertyBlock, path: str, wanted: Value, default: Value = None) -> Iterator[Violation]:
    """The property must have this value; `default` is what the provider takes where it is left out."""
    got = props.get(path, default)
    if got != wanted:
        yield Violation(props.at(path), _shown(got), _shown(wanted))


@independent
def must_be_set(props: PropertyBlock, path: str, allowed: str) -> Iterator[Violation]:
    """The property must be set; a value not yet known is one, and a block not yet known may lack it."""
    if not props.has(path):
        yield Violation(props.at(path), NOTHING, allowed)


@independent
def must_have_key(
    props: PropertyBlock, path: str, allowed: str = "a customer-managed key"
) -> Iterator[Violation]:
    """The property must name a customer's key: neither the cloud's own (`alias/aws/…`) nor an empty text."""
    if not props.has(path):
        yield Violation(props.at(path), NOTHING, allowed)
        return
    with suppress(UnknownProperty):  # what is not known yet is an output: a key of this program
        key = str(props.get(path))
        if not key.strip() or "alias/aws/" in key:
            yield Violation(props.at(path), key or "an empty text", allowed)


def must_avoid(
    props: PropertyBlock, settings: Mapping[str, tuple[tuple[Value, ...], str]]
) -> Iterator[Violation]:
    """No property of these names, at any depth, has one of its values; the text says what is allowed."""
    for path, key, value in () if props.names.isdisjoint(settings) else props.leaves:
        values, allowed = settings.get(key, ((), ""))
        if value in values:
            yield Violation(path, _shown(value), allowed)
        elif value is UNKNOWN and values:
            yield Violation(path, NOT_KNOWN, "", is_deferred=True)


@cache
def refused(policy: str) -> Mapping[str, tuple[tuple[Value, ...], str]]:
    """What `must_avoid` takes: name of a property → the values that a policy refuses, and what is allowed."""
    listed = SETTINGS[policy]["refused"]
    return {name: (tuple(each["values"]), each["allowed"]) for each in listed for name in each["names"]}


def must_be_permitted(resource: Resource, path: str, region: str) -> Iterator[Violation]:
    """The region that `path` names must be one that the stack permits."""
    residency = resource.stack.residency
    if residency.is_declared and not residency.permits(canonical(region)):
        yield Violation(path, region, str(residency))


def counted(number: int, noun: str) -> str:
    """A number of things, in words: `1 network`, `0 networks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _shown(value: Value) -> str:
    if value is None:
        return NOTHING
    return str(value).lower() if isinstance(value, bool) else f"{value}"
