"""Translates pydantic's errors into problems: path, what was found, what is allowed, what to do."""

import shlex
from collections.abc import Iterator, Mapping, Sequence
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from pydantic_core import ErrorDetails

from infra.errors import Problem, did_you_mean, nearest
from infra.stackfile.base import Time
from infra.stackfile.scalars import time_of
from infra.stackfile.source import KeyPath, SpecSource

_ALSO_CALLED: Mapping[str, str] = {
    "accelerators_per_node": "gpus",
    "environment": "env",
    "grace_seconds": "grace",
    "hub": "manager",
    "legacy_v1": "training_operator",
    "legacy_v1_kinds": "training_operator",
    "provider": "target",
}
"""Other names of keys, of which the spelling is not near → our keys."""

_FORMER_ARGUMENTS = ("config", "overrides", "module")
"""Keys of a job that words of its program have replaced."""

_FORMER_VALUES: Mapping[str, str] = {
    "any": "rdma",
    "flex-start": "node-by-node",
    "none": "tcp",
    "present": "existing",
    "queued": "all-at-once",
}
"""Value that another word has replaced → that word, the next step where it is allowed."""

_ALLOWED: Mapping[str, tuple[str, str]] = {
    "literal_error": ("{expected}", "choose one of these"),
    "int_type": ("a whole number", "write the number without quotes, point or unit"),
    "bool_type": ("true or false", "write true or false, without quotes"),
    "string_type": ("text", "write text; quote it where YAML reads it as something else"),
    "string_pattern_mismatch": ("text that matches {pattern}", "correct the value"),
    "string_too_long": ("at most {max_length} characters", "shorten it"),
    "string_too_short": ("at least {min_length} character", "write a value"),
    "greater_than_equal": ("{ge} or more", "raise it to {ge} or more"),
    "less_than_equal": ("{le} or less", "lower it to {le} or less"),
    "too_short": ("{min_length} entry or more", "add an entry, or omit the key if it is optional"),
    "tuple_type": ("a list", "begin each entry with '- '"),
    "dict_type": ("a mapping", "write `key: value` lines under it"),
    "model_type": ("a mapping", "write `key: value` lines under it"),
    "union_tag_invalid": ("{discriminator}: {expected_tags}", "choose one of these"),
    "union_tag_not_found": ("a mapping with the key {discriminator}", "set the kind"),
}
"""Kind of pydantic error → allowed values and next step, as templates for the error's context."""


def problems(
    model: type[BaseModel],
    errors: Sequence[ErrorDetails],
    data: Any,  # noqa: ANN401
    source: SpecSource,
) -> Iterator[Problem]:
    """Translate the model's errors about `data`, without those that only follow from another one."""
    located = [(_in_data((*e["loc"], *e.get("ctx", {}).get("below", ())), data), e) for e in errors]
    found = {problem.path for problem in source.problems}
    unknown = {path for path, error in located if error["type"] == "extra_forbidden"}
    for path, error in located:
        emptied = error["type"] == "too_short" and any(_is_below(other, path) for other, _ in located)
        misspelled = error["type"] == "missing" and any(
            path[:-1] == other[:-1] and _means(str(other[-1]), str(path[-1])) for other in unknown
        )
        if not emptied and not misspelled and source.show(path) not in found:
            yield _problem(model, error, path, data, source)


def changed_times(model: type[BaseModel], data: Any, source: SpecSource) -> Iterator[Problem]:  # noqa: ANN401
    """Refuse unquoted times where text is read: the program gets them in another format."""
    for path, text in source.texts.items():
        if not time_of(text):
            continue
        field = _fields(model, path[:-1], data).get(str(path[-1]))
        if not field or Time not in (field.annotation, *get_args(field.annotation)):
            fix = f'write it in quotes: "{text}"'
            yield Problem(
                source.show(path), text, "text, which YAML would change", fix, source.location(path)
            )


def _is_below(path: KeyPath, above: KeyPath) -> bool:
    return len(path) > len(above) and path[: len(above)] == above


def _problem(
    model: type[BaseModel],
    error: ErrorDetails,
    path: KeyPath,
    data: Any,  # noqa: ANN401
    source: SpecSource,
) -> Problem:
    allowed, fix = _explain(model, error, path, data)
    value = _value(path, data)
    got = "nothing" if error["type"] == "missing" else source.texts.get(path, _short(value))
    if error["type"] in {"string_type", "literal_error"} and isinstance(value, int | float):
        written = source.texts.get(path, str(value))
        if error["type"] == "string_type" or repr(written) in allowed:
            fix = f'write it in quotes: "{written}"'
    if error["type"] == "literal_error" and isinstance(value, str):
        fix = _instead_of(value, path, allowed) or fix
    if "secrets" in path and error["type"] in {"extra_forbidden", "model_type", "tuple_type"}:
        got = "a value (not shown)"  # the user may have written the secret itself here
    if error["loc"][-1:] == ("[key]",):
        got = f"the key {path[-1]!r}"
    return Problem(source.show(path), got, allowed, fix, source.location(path))


def _instead_of(value: str, path: KeyPath, allowed: str) -> str:
    """Return what to write for a word that another one has replaced; empty for other words."""
    if path[-1:] == ("capacity",) and value == "system":
        return "write `role: system` in place of `capacity: system`"
    word = _FORMER_VALUES.get(value)
    return f"write {word}" if word and repr(word) in allowed else ""


def _instead_of_key(key: str, fields: Mapping[str, FieldInfo], value: object) -> str:
    """Return what to write for a key that has become something else than a key; empty for other keys."""
    if key == "job" and "pools" in fields:
        return "write it into a file of its own, job.yaml, and pass that: trainyard up --job job.yaml"
    if "args" not in fields or key not in _FORMER_ARGUMENTS:
        return ""
    if key == "module":
        return f"write command: [python, -m, {value}]"
    settings = value.items() if isinstance(value, dict) else ()
    words = [f"{name}={_yaml(each)}" for name, each in settings] if key == "overrides" else [str(value)]
    option = "--set" if key == "overrides" else "--config"
    return f"write it among args: [{', '.join(f'{option}, {word}' for word in words)}]"


def _yaml(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _explain(
    model: type[BaseModel],
    error: ErrorDetails,
    path: KeyPath,
    data: Any,  # noqa: ANN401
) -> tuple[str, str]:
    context = error.get("ctx", {})
    key = str(path[-1]) if path else ""
    if "fix" in context and error["type"] != "quantity":
        return str(context["allowed"]), str(context["fix"])
    if error["type"] == "extra_forbidden":
        fields = _fields(model, path[:-1], data)
        allowed, fix = _unknown_key(key, fields)
        return allowed, _instead_of_key(key, fields, _value(path, data)) or fix
    field = _fields(model, path[:-1], data).get(key)
    meaning = f" ({field.description})" if field and field.description else ""
    if error["type"] == "quantity":
        return str(context["allowed"]) + meaning, str(context["fix"])
    if error["type"] == "missing":
        return f"the key {key!r}{meaning}", f"add `{key}:` here"
    if error["type"] not in _ALLOWED:
        return error["msg"] + meaning, "correct the value"
    allowed, fix = (template.format(**context) for template in _ALLOWED[error["type"]])
    if key == "command" and error["type"] == "tuple_type":
        fix = _as_list(_value(path, data)) or fix
    return allowed + meaning, fix


def _as_list(command: object) -> str:
    """Return how to write a command that was given as one shell line; empty for any other value."""
    try:
        words = shlex.split(command) if isinstance(command, str) else []
    except ValueError:  # a quote that does not close
        return ""
    text = yaml.safe_dump(words, default_flow_style=True, width=1000).strip()
    return f"write {text}" if words and "\n" not in text else ""


def _means(written: str, key: str) -> bool:
    return _ALSO_CALLED.get(written) == key or bool(nearest(key, [written]))


def _unknown_key(key: str, fields: Mapping[str, FieldInfo]) -> tuple[str, str]:
    meant = _ALSO_CALLED.get(key, key)
    fix = did_you_mean(meant if meant in fields else key, fields, "remove the key")
    return "the keys " + ", ".join(fields), fix


def _fields(model: type[BaseModel], path: KeyPath, data: Any) -> Mapping[str, FieldInfo]:  # noqa: ANN401
    """Return the fields of the model that reads the data at this path, by the name the user writes."""
    from infra.stackfile.target import TargetSpec  # slow to import, and a job needs neither
    from infra.stackfile.targets import target_model

    current: Any = model
    for position, part in enumerate(path):
        if isinstance(part, int):
            continue  # the field of the list has resolved to the model of its entries already
        field = _by_alias(current).get(part) if _is_model(current) else None
        current = _model_in(field.annotation if field else None, _value(path[: position + 1], data))
        if current is TargetSpec:
            current = target_model(data.get("target"))
    return _by_alias(current) if _is_model(current) else {}


def _by_alias(model: type[BaseModel]) -> dict[str, FieldInfo]:
    return {field.alias or name: field for name, field in model.model_fields.items()}


def _is_model(annotation: Any) -> bool:  # noqa: ANN401
    return isinstance(annotation, type) and issubclass(annotation, BaseModel)


def _model_in(annotation: Any, value: Any) -> Any:  # noqa: ANN401 -- annotations have no common type
    """Look through Annotated, Optional, unions and tuples for the model inside that reads the value."""
    if get_origin(annotation) in {Annotated, Union, UnionType, tuple}:
        models = [found for argument in get_args(annotation) if (found := _model_in(argument, value))]
        return next((model for model in models if _is_of_kind(model, value)), models[0] if models else None)
    return annotation if _is_model(annotation) else None


def _is_of_kind(model: type[BaseModel], value: Any) -> bool:  # noqa: ANN401
    kind = model.model_fields.get("kind")
    return kind is not None and isinstance(value, dict) and value.get("kind") in get_args(kind.annotation)


def _in_data(location: tuple[str | int, ...], data: Any) -> KeyPath:  # noqa: ANN401
    """Drop what pydantic adds to a location (tags of unions, `[key]`), so that it points into the data."""
    path: list[str | int] = []
    for index, part in enumerate(location):
        last = index == len(location) - 1
        if below := _below(data, part):
            (data,) = below
            path.append(part)
        elif last and isinstance(data, dict) and part != "[key]":
            path.append(part)
    return tuple(path)


def _value(path: KeyPath, data: Any) -> Any:  # noqa: ANN401
    for part in path:
        (data,) = _below(data, part) or (None,)
    return data


def _below(data: Any, part: str | int) -> tuple[Any, ...]:  # noqa: ANN401
    """Return the value at a part of a location, if there is one; pydantic makes text of other keys."""
    if isinstance(data, dict):
        return next(((value,) for key, value in data.items() if str(key) == str(part)), ())
    return (data[part],) if isinstance(data, list) and isinstance(part, int) else ()


def _short(value: object) -> str:
    text = "an empty value" if value is None else repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
