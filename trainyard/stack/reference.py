"""Writes the parts of the reference of stack files from their JSON Schema: tables, types and defaults."""

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from catalog.quantities import DURATION, SIZE
from infra.stackfile.node_pool import RANGE

Schema = Mapping[str, Any]

JOB: Schema = {"$ref": "#/$defs/JobSpec", "description": "a job file, job.yaml"}
EMPTY_DEFAULTS: tuple[object, ...] = (None, [], {}, "")


def table_of(definition: Schema) -> list[str]:
    """Return the rows of an object's keys."""
    required = set(definition.get("required", ()))
    rows = [
        f"| `{key}` | {type_of(each)} | {default_of(key, each, required)} | {each.get('description', '')} |"
        for key, each in definition.get("properties", {}).items()
    ]
    return ["| key | value | default | meaning |", "|---|---|---|---|", *rows, ""]


def reached(start: Schema, definitions: Mapping[str, Schema], besides: Collection[str] = ()) -> Iterator[str]:
    """Yield each type that a value of `start` can contain, once; types of one table before nested ones.

    `besides`: types that are not followed.
    """
    seen: dict[str, None] = {}
    waiting = [start]
    while waiting:
        for name in _references(waiting.pop(0)):
            if name not in seen and name not in besides:
                seen[name] = None
                waiting.append(definitions[name])
    yield from seen


def _references(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        if "$ref" in node:
            yield name_of(node["$ref"])
        for each in node.values():
            yield from _references(each)
    elif isinstance(node, list):
        for each in node:
            yield from _references(each)


def name_of(reference: str) -> str:
    """Return the name of the type that a reference means."""
    return reference.rpartition("/")[2]


def title_of(name: str) -> str:
    """Return the heading of a type."""
    return name.removesuffix("Spec")


def sentence_of(definition: Schema) -> str:
    """Return a type's description on one line."""
    return " ".join(str(definition.get("description", "")).split())


def type_of(value: Schema) -> str:
    """Return a short description of a value's type."""
    if choices := list(_alternatives(value)):
        return _choices(choices)
    if "$ref" in value:
        title = title_of(name_of(value["$ref"]))
        return f"[{title}](#{title.lower()})"
    if value.get("type") == "array":
        return _array(value)
    if value.get("type") == "object":
        return _object(value)
    if value.get("pattern") in _FORMS:
        return _FORMS[value["pattern"]]
    return f"{_PLAIN.get(value.get('type', ''), 'any')}{_bounds(value)}"


def _alternatives(value: Schema) -> Iterator[str]:
    """Yield the alternatives of a value's type."""
    constant = [value["const"]] if "const" in value else []
    yield from (f"`{each}`" for each in value.get("enum", constant))
    several = [*value.get("anyOf", ()), *value.get("oneOf", ())]
    yield from (type_of(each) for each in several if each.get("type") != "null")
    yield from (type_of(each["then"]) for each in value.get("allOf", ()))


_PLAIN = {"string": "text", "integer": "whole number", "number": "number", "boolean": "true or false"}
_FORMS = {
    f"^{SIZE}$": "size, such as `20Gi`",
    f"^{DURATION}$": "duration, such as `30m`",
    RANGE: "range, such as `0..4`",
}
"""Pattern of a text → its form in words."""
MANY = 8
"""Maximum number of choices in a table's cell; longer lists are counted, and are in the schema."""


def _choices(names: list[str]) -> str:
    if len(names) > MANY:
        return f"{', '.join(names[:MANY])}, … ({len(names)})"
    return ", ".join(names)


def _array(value: Schema) -> str:
    items = value.get("items") or {}
    limits = _count(value.get("minItems"), value.get("maxItems"), "entry", "entries")
    return (f"list of {type_of(items)}" if items else "list") + (f", {limits}" if limits else "")


def _object(value: Schema) -> str:
    below = value.get("additionalProperties") or next(iter(value.get("patternProperties", {}).values()), None)
    if isinstance(below, Mapping):
        return f"name: {type_of(below)}"
    keys = value.get("properties")
    return f"mapping of {', '.join(f'`{key}`' for key in keys)}" if keys else "mapping"


def _bounds(value: Schema) -> str:
    """Return the limits of a value, as the end of its type's description; empty if there are none."""
    if value.get("type") == "string":
        limits = _count(value.get("minLength"), value.get("maxLength"), "character", "characters")
        return f" of {limits}" if limits else ""
    low, high = value.get("minimum"), value.get("maximum")
    if low is not None and high is not None:
        return f", {low} to {high}"
    if low is not None:
        return f", {low} or more"
    return f", {high} at most" if high is not None else ""


def _count(low: int | None, high: int | None, singular: str, plural: str) -> str:
    """Return an allowed number of things in words: `at least 1 character`; empty if any number is allowed."""
    if low and high is not None:
        return f"{low} to {high} {plural}" if low < high else f"{low} {singular if low == 1 else plural}"
    if high is not None:
        return f"at most {high} {singular if high == 1 else plural}"
    return f"at least {low} {singular if low == 1 else plural}" if low else ""


def default_of(key: str, value: Schema, required: set[str]) -> str:
    """Return a key's default as a table's cell; empty for none."""
    if key in required:
        return "**required**"
    default = value.get("default")
    is_section = isinstance(default, Mapping) and "$ref" in value
    return "" if is_section or default in EMPTY_DEFAULTS else f"`{json.dumps(default)}`"
