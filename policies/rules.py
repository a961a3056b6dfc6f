"""Checks that many policies share; each yields violations of one property."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import wraps
from typing import ParamSpec

from policies.policy import Resource, Violation
from policies.region import canonical
from policies.unknowns import PropertyBlock, UnknownProperty, Value

NOTHING = "nothing"
NOT_KNOWN = "a value not known at preview"
Check = ParamSpec("Check")


def independent(
    check: Callable[Check, Iterable[Violation]],
) -> Callable[Check, Iterator[Violation]]:
    """Wrap a check so that those after it run even if it needs a value that is not known at preview."""

    @wraps(check)
    def wrapped(*args: Check.args, **kwargs: Check.kwargs) -> Iterator[Violation]:
        try:
            yield from check(*args, **kwargs)
        except UnknownProperty as unknown:
            yield Violation(unknown.path, NOT_KNOWN, "", is_deferred=True)

    return wrapped


PUBLIC_MEMBERS = ("allUsers", "allAuthenticatedUsers")
"""Members of an IAM binding on Google Cloud that mean the public."""


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


def must_be_permitted(resource: Resource, path: str, region: str) -> Iterator[Violation]:
    """The region that `path` names must be one that the stack permits."""
    residency = resource.stack.residency
    if residency.is_declared and not residency.permits(canonical(region)):
        yield Violation(path, region, str(residency))


def must_be_listed(resource: Resource, path: str, target: str) -> Iterator[Violation]:
    """A target whose name has no region must be on the policy's list of targets known to be inside."""
    if resource.stack.residency.is_declared and target not in resource.parameters["inside"]:
        yield Violation(path, target, "a target that the parameter `inside` lists")


@independent
def must_name_members(binding: PropertyBlock) -> Iterator[Violation]:
    """A binding of Google Cloud's IAM must be for named members."""
    for name in ("member", "members"):
        for member in binding.texts(name):
            if member in PUBLIC_MEMBERS:
                yield Violation(binding.at(name), member, "named members")


def counted(number: int, noun: str) -> str:
    """A number of things, in words: `1 network`, `0 networks`."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


INSIDE_PARAMETER = {
    "inside": {
        "type": "array",
        "items": {"type": "string"},
        "default": [],
        "description": "Targets known to be inside the permitted regions though their names do not say so.",
    }
}


def arn_region(arn: str) -> str:
    """The region of an ARN; empty where it has none (`arn:aws:s3:::bucket`)."""
    parts = arn.split(":")
    return parts[3] if len(parts) > 5 else ""


def _shown(value: Value) -> str:
    if value is None:
        return NOTHING
    return str(value).lower() if isinstance(value, bool) else f"{value}"
