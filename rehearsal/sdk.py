"""Validates a resource's inputs against the types of the Pulumi SDKs.

The SDKs declare their types for type checkers only. Here they validate the inputs that reach the provider:
unknown, missing and wrongly typed properties.
"""

import importlib
import inspect
import sys
import types
import typing
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from enum import Enum
from functools import cache
from typing import Any

import pulumi
from pulumi import _types
from pulumi.runtime import rpc

from rehearsal.wire import UNKNOWN

_SCALARS: Mapping[type, tuple[str, tuple[type, ...]]] = {
    str: ("a string", (str,)),
    bool: ("true or false", (bool,)),
    int: ("an integer", (int,)),
    float: ("a number", (int, float)),
}
_ALWAYS_ALLOWED = frozenset({"id", "apiVersion", "kind"})


class NoTypesError(Exception):
    """No SDK that is installed knows the type."""


def problems(token: str, inputs: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Find violations of the SDK's types, as (property, problem). Raises `NoTypesError` if it has none."""
    arguments = arguments_of(token)
    yield from _check_class(arguments, inputs, "")


@cache
def optional(token: str) -> frozenset[str]:
    """Return the optional properties; none for a type that no SDK knows."""
    try:
        known, required = _names(arguments_of(token))
    except NoTypesError:
        return frozenset()
    return frozenset(known) - required


@cache
def arguments_of(token: str) -> type:
    """Return the class of a resource's inputs; `NoTypesError` where no SDK has one."""
    resource = resource_of(token)
    module = importlib.import_module(resource.__module__)
    for suffix in ("InitArgs", "Args"):
        found = getattr(module, f"{resource.__name__}{suffix}", None)
        if isinstance(found, type) and _types.is_input_type(found):
            return found
    raise NoTypesError(token)


@cache
def resource_of(token: str) -> type[pulumi.CustomResource]:
    """Return the class of a resource; `NoTypesError` where no SDK has one."""
    package, module, name = [*token.split(":"), "", ""][:3]
    try:
        importlib.import_module(f"pulumi_{package.replace('-', '_')}")  # as Pulumi names its SDKs
    except ModuleNotFoundError as error:
        raise NoTypesError(token) from error
    for known in rpc._RESOURCE_MODULES.get(rpc._module_key(package, module), []):
        where = importlib.import_module(known.mod_info["fqn"])  # type: ignore[attr-defined]
        if found := known.mod_info["classes"].get(token):  # type: ignore[attr-defined]
            return _class_in(where, found)
    raise NoTypesError(f"{token} ({name})")


def _class_in(package: types.ModuleType, name: str) -> type[pulumi.CustomResource]:
    """Return a class of a package.

    A lazily loaded package may not expose submodules that were imported directly.
    """
    found: type[pulumi.CustomResource] | None = getattr(package, name, None)
    if found is None:
        parts = [each for each in sys.modules if each.startswith(f"{package.__name__}.")]
        found = next(getattr(sys.modules[part], name) for part in parts if hasattr(sys.modules[part], name))
    return found


def outputs_of(token: str) -> Mapping[str, Any]:
    """Return the names and types of a resource's outputs."""
    return _types.resource_types(resource_of(token))


@cache
def _names(arguments: type) -> tuple[dict[str, Any], frozenset[str]]:
    """Types by property, and the properties that must be given."""
    spelled = _types.input_type_py_to_pulumi_names(arguments)
    parameters = inspect.signature(arguments.__init__).parameters  # type: ignore[misc]
    required = frozenset(
        spelled[name]
        for name, parameter in parameters.items()
        if name in spelled and parameter.default is inspect.Parameter.empty
    )
    return dict(_types.input_type_types(arguments)), required


def _check_class(arguments: type, value: Mapping[str, Any], path: str) -> Iterator[tuple[str, str]]:
    known, required = _names(arguments)
    for name in sorted(required - value.keys()):
        yield _join_path(path, name), "is missing"
    for name, each in value.items():
        if name in known:
            yield from _check_value(known[name], each, _join_path(path, name))
        elif not (name.startswith("__") or (not path and name in _ALWAYS_ALLOWED)):
            near = get_close_matches(name, known, n=1)
            meant = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            yield _join_path(path, name), f"is not a property of this type; {meant}"


def _check_value(expected: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if value is None or value == UNKNOWN or expected is Any:
        return
    alternatives = [each for each in _alternatives(expected) if not typing.is_typeddict(each)]
    found = [list(_check_alternative(each, value, path)) for each in alternatives]
    if found and all(found):
        yield from min(found, key=len)


def _check_alternative(expected: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    origin = typing.get_origin(expected) or expected
    inner = typing.get_args(expected)
    if origin in (Sequence, list):
        if not isinstance(value, list):
            yield path, f"got {value!r}; a list is allowed"
            return
        for index, each in enumerate(value):
            yield from _check_value(inner[0], each, f"{path}[{index}]")
    elif origin in (Mapping, dict):
        if not isinstance(value, Mapping):
            yield path, f"got {value!r}; a mapping is allowed"
            return
        for key, each in value.items():
            yield from _check_value(inner[1], each, f"{path}[{key!r}]")
    elif isinstance(origin, type) and _types.is_input_type(origin):
        if not isinstance(value, Mapping):
            yield path, f"got {value!r}; a {origin.__name__.removesuffix('Args')} is allowed"
            return
        yield from _check_class(origin, value, path)
    else:
        yield from _check_scalar(origin, value, path)


def _check_scalar(expected: Any, value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(expected, type) and issubclass(expected, Enum):
        allowed = [member.value for member in expected]
        if value not in allowed:
            yield path, f"got {value!r}; allowed are {', '.join(map(str, allowed))}"
        return
    described, classes = _SCALARS.get(expected, ("", ()))
    wrong_truth = isinstance(value, bool) and expected is not bool
    if classes and (wrong_truth or not isinstance(value, classes)):
        yield path, f"got {value!r}; {described} is allowed"


def _alternatives(expected: Any) -> Iterator[Any]:
    """The types of an annotation, without None, awaitables and outputs, which only a program holds."""
    origin = typing.get_origin(expected)
    if origin in (typing.Union, types.UnionType):
        for each in typing.get_args(expected):
            yield from _alternatives(each)
    elif isinstance(expected, typing.ForwardRef):
        yield Any
    elif expected is not type(None) and origin not in (Awaitable, pulumi.Output):
        yield expected


def _join_path(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
