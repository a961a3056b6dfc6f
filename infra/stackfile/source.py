"""Reads stack, fleet, team and job files as plain data with the line and column of each value; applies a
template's answers, and finds duplicate and unread keys.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from infra.errors import InputError, Problem, did_you_mean
from infra.stackfile import answers
from infra.stackfile.answers import Override, answered, is_answerable, overrides, path_of
from infra.stackfile.scalars import LEADING_ZERO, NO_NUMBER, is_changed, value_of, written_value_of

KeyPath = answers.KeyPath
show = answers.show

NAMESPACE = "trainyard:"
STACK_KEY = "trainyard:stack"
FLEET_KEY = "trainyard:fleet"
BACKEND_KEY = "trainyard:backend"
POLICY_KEYS = ("trainyard:residency", "trainyard:exemptions", "trainyard:purchases", "trainyard:unknown")
CONFIG_KEYS = (STACK_KEY, FLEET_KEY, BACKEND_KEY, *POLICY_KEYS)
"""Keys of our namespace that are read; keys of other namespaces belong to the engine and the user."""


_PLAIN, _MERGE = "!plain", "tag:yaml.org,2002:merge"


class _Loader(yaml.CSafeLoader):
    """Reads plain scalars as the engine does, so that a program gets what `validate` has checked."""

    def resolve(self, kind: type[yaml.Node], value: Any, implicit: Any) -> str:  # noqa: ANN401
        if kind is yaml.ScalarNode and implicit[0]:
            return _MERGE if value == "<<" else _PLAIN
        return str(super().resolve(kind, value, implicit))  # type: ignore[no-untyped-call]


_Loader.add_constructor(_PLAIN, lambda _, node: value_of(node.value))


class _OwnLoader(_Loader):
    """Reads files that the engine never sees: what YAML would spell otherwise stays as written, 3e-4."""


_OwnLoader.add_constructor(_PLAIN, lambda _, node: written_value_of(node.value))


@dataclass(frozen=True)
class SpecSource:
    """Origin of data: file and locations; data without them (the engine's configuration) has no lines."""

    label: str
    marks: Mapping[KeyPath, tuple[int, int]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()
    """Problems in the YAML text; the data can still be read."""
    key: str = STACK_KEY
    """Configuration key that contains the data."""
    overrides: tuple[Override, ...] = ()
    """Values of the data that answers have replaced."""
    texts: Mapping[KeyPath, str] = field(default_factory=dict)
    """Numbers and times as they are written, without quotes, where the program gets another text for them."""
    parts: Mapping[KeyPath, "SpecSource"] = field(default_factory=dict)
    """Path of what is in a file of its own, such as a team → that file."""
    derived: Mapping[KeyPath, KeyPath] = field(default_factory=dict)
    """Path of what a default has made → the path of what the user wrote for it."""

    def show(self, path: KeyPath) -> str:
        """Spell a path as it is read; the whole is called by its key."""
        return show(self._written(path)) or self.key

    def _written(self, path: KeyPath) -> KeyPath:
        return next((to for made, to in self.derived.items() if path[: len(made)] == made), path)

    def location(self, path: KeyPath) -> str:
        """Return `file:line:column` of the value, or of the nearest thing around it that exists."""
        path = self._written(path)
        for above, part in self.parts.items():
            if path[: len(above)] == above:
                return part.location(path[len(above) :])
        for length in range(len(path), -1, -1):
            if path[:length] in self.marks:
                line, column = self.marks[path[:length]]
                return f"{self.label}:{line}:{column}"
        return self.label


def read(path: Path, key: str = STACK_KEY) -> tuple[Any, SpecSource]:
    """Read `config: {trainyard:stack: ...}` of a stack file, or another key's value.

    Answers beside it (`trainyard:stack.PATH`) replace values of the mapping.

    Raises InputError where the file cannot be read, is no YAML, or has no mapping under the key.
    """
    config = _child(_composed(path), "config")
    node = _child(config, key)
    if not isinstance(node, yaml.MappingNode):
        raise InputError([_missing_key(path, key), *_unread_keys(path, config, key, None)])
    data, source = _constructed(path, node), _source_of(path, node, key)
    source = replace(source, texts=dict(_texts(node, ())))
    unread = tuple(_unread_keys(path, config, key, data))
    given = {at: each for at, each in _answers(config, key) if is_answerable(data, at)}
    marks = {**source.marks, **{at: _line_and_column(each) for at, each in given.items()}}
    values = {at: each.value for at, each in given.items()}
    changed = tuple(_with_locations(each, source, marks) for each in overrides(data, values, key))
    found = replace(
        source, marks=marks, problems=(*unread, *source.problems, *_misread(source)), overrides=changed
    )
    data = answered(data, values)
    return with_teams(data, found, path.parent) if key == STACK_KEY else (data, found)


def with_teams(data: Any, source: SpecSource, folder: Path) -> tuple[Any, SpecSource]:  # noqa: ANN401
    """Replace a stack's `teams_from` by the teams of that folder's files, after those of the stack file.

    Each file is one entry of `teams`. The source has the position of each, and what is wrong with the files.
    """
    name, teams = (data.get("teams_from"), data.get("teams", [])) if isinstance(data, dict) else (None, None)
    if not isinstance(name, str) or not re.fullmatch("[a-z][a-z0-9-]*", name) or not isinstance(teams, list):
        return data, source  # the model reports what is wrong
    found, problems = [*teams], [*source.problems]
    parts: dict[KeyPath, SpecSource] = {}
    if not (folder / name).is_dir():
        allowed, fix = f"a folder beside the stack file: {folder / name}", "`trainyard team new` makes it"
        where = source.location(("teams_from",))
        problems.append(Problem(source.show(("teams_from",)), repr(name), allowed, fix, where))
    for file in sorted((folder / name).glob("*.y*ml")):
        try:
            team, part = read_whole(file)
        except InputError as error:
            problems += error.problems
            continue
        path = ("teams", len(found))
        problems += part.problems
        if "name" in team and file.name != f"{team['name']}.yaml":
            allowed, fix = f"{file.stem}: a team's file is NAME.yaml", "rename the file or the team"
            at, where = show((*path, "name")), part.location(("name",))
            problems.append(Problem(at, repr(team["name"]), allowed, fix, where))
        found.append(team)
        parts[path] = part
    rest = {key: value for key, value in data.items() if key != "teams_from"}
    return {**rest, "teams": found}, replace(source, parts=parts, problems=tuple(problems))


def read_config(path: Path) -> Mapping[str, Any]:
    """Read all of a stack file's `config`, without checks. Raises InputError where the file is no YAML."""
    return dict(document(path).get("config") or {})


def document(path: Path) -> dict[str, Any]:
    """Return a whole stack file as the engine reads it. Raises InputError where the file is no YAML."""
    node = _composed(path)
    return _constructed(path, node) if isinstance(node, yaml.MappingNode) else {}


def _with_locations(
    change: Override, source: SpecSource, marks: Mapping[KeyPath, tuple[int, int]]
) -> Override:
    answer = replace(source, marks=marks).location(change.path)
    return replace(change, at=answer, former_at=source.location(change.path))


def _answers(config: yaml.Node | None, section: str) -> Iterator[tuple[KeyPath, yaml.ScalarNode]]:
    """Yield the values that answer for a section."""
    for key, _, value in _items(config) if isinstance(config, yaml.MappingNode) else ():
        at = path_of(str(key), section)
        if at is not None and isinstance(value, yaml.ScalarNode):
            yield at, value


def node_of(text: str, keys: tuple[str, ...]) -> yaml.Node | None:
    """Return the node of a stack file's text under these keys, with its marks; None where there is none."""
    node = yaml.compose(text, Loader=_Loader)
    for key in keys:
        node = _child(node, key)
    return node


def read_whole(path: Path) -> tuple[Any, SpecSource]:
    """Read a file that is one mapping, such as a job.yaml or a team's. Raises InputError as `read` does."""
    node = _composed(path)
    if not isinstance(node, yaml.MappingNode):
        allowed, fix = "a mapping: `key: value` lines", "write its keys (docs/stack-file.md)"
        raise InputError([Problem(str(path), "not a mapping", allowed, fix, str(path))])
    return _constructed(path, node, _OwnLoader), _source_of(path, node, path.name)


def _composed(path: Path) -> yaml.Node | None:
    try:
        return yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader)
    except OSError as error:
        raise InputError([_unreadable(path, error.strerror or str(error))]) from None
    except UnicodeDecodeError:
        raise InputError([_unreadable(path, "bytes that are not UTF-8")]) from None
    except yaml.YAMLError as error:
        raise InputError([_not_yaml(path, _explained(path, error))]) from None


def _explained(path: Path, error: yaml.YAMLError) -> yaml.YAMLError:
    """Return what libyaml's parser, ten times as fast, reports in other words: what it found."""
    try:
        yaml.compose(path.read_text(encoding="utf-8"), Loader=yaml.SafeLoader)
    except yaml.YAMLError as explained:
        return explained
    return error


def _source_of(path: Path, node: yaml.MappingNode, key: str) -> SpecSource:
    try:
        twice = tuple(_duplicate(path, each, mark) for each, mark in _duplicates(node, ()))
        marks = dict(_marks(node, ()))
    except RecursionError:
        fix = "remove the alias (`*name`), and write the value"
        raise InputError([Problem(str(path), "a value within itself", "values that end", fix)]) from None
    return SpecSource(str(path), marks, twice, key)


def _texts(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, str]]:
    """Yield the unquoted scalars of which the program gets another text."""
    if node.tag == _PLAIN and (NO_NUMBER.fullmatch(node.value) or is_changed(node.value)):
        yield path, node.value
    for key, _, value in _items(node):
        yield from _texts(value, (*path, key))


def _misread(source: SpecSource) -> Iterator[Problem]:
    """Refuse numbers that mean something else than they seem to, and those that the engine cannot pass on."""
    for path, text in source.texts.items():
        if NO_NUMBER.fullmatch(text):
            allowed, fix = "a finite number; JSON has no other", "correct it"
        elif LEADING_ZERO.fullmatch(text):
            allowed = f"no leading zeros without quotes, which YAML reads as {value_of(text)}"
            fix = "write the number without them"
        else:
            continue
        yield Problem(source.show(path), text, allowed, f'{fix}, or as text: "{text}"', source.location(path))


def _constructed(path: Path, node: yaml.MappingNode, loader: type[_Loader] = _Loader) -> dict[str, Any]:
    """Return a mapping's data. Raises InputError where its tags or keys allow none."""
    try:
        return dict(loader("").construct_document(node))
    except (yaml.YAMLError, ValueError, TypeError, AttributeError) as error:  # such as of `!!timestamp x`
        raise InputError([_not_yaml(path, error)]) from None


def _unread_keys(path: Path, config: yaml.Node | None, key: str, section: Any) -> Iterator[Problem]:  # noqa: ANN401
    """Find keys of our namespace that nothing reads: a misspelt residency rule would have no effect."""
    for each, at, value in _items(config) if isinstance(config, yaml.MappingNode) else ():
        name = str(each)
        if not name.startswith(NAMESPACE) or name in CONFIG_KEYS:
            continue
        line, column = _line_and_column(at)
        where, answers_at = f"{path}:{line}:{column}", path_of(name, key)
        if answers_at is None:
            fix = did_you_mean(name, CONFIG_KEYS, "remove it")
            yield Problem(f"config.{name}", "an unknown key", ", ".join(CONFIG_KEYS), fix, where)
        elif not is_answerable(section, answers_at) or not isinstance(value, yaml.ScalarNode):
            allowed = f"a single value that overrides the one at this path of {key}"
            yield Problem(
                f"config.{name}", "an answer without a question", allowed, f"write it into {key}", where
            )
        elif value.tag == _PLAIN and is_changed(value.value):
            got, fix = value.value, f'write it in quotes: "{value.value}"'
            yield Problem(f"config.{name}", got, "a value that YAML reads as it is written", fix, where)


def holds(path: Path, key: str) -> bool:
    """Whether a stack file has this key under `config`; False for one that cannot be read."""
    try:
        root = yaml.compose(path.read_text(encoding="utf-8"), Loader=_Loader)
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return False
    return _child(_child(root, "config"), key) is not None


def _child(node: yaml.Node | None, key: str) -> yaml.Node | None:
    if isinstance(node, yaml.MappingNode):
        return next((value for name, value in node.value if name.value == key), None)
    return None


def _items(node: yaml.Node) -> Iterator[tuple[str | int, yaml.Node, yaml.Node]]:
    """Yield key, the node to point at for the key, and the value's node."""
    if isinstance(node, yaml.MappingNode):
        yield from ((str(key.value), key, value) for key, value in node.value)
    elif isinstance(node, yaml.SequenceNode):
        yield from ((index, value, value) for index, value in enumerate(node.value))


def _marks(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, tuple[int, int]]]:
    for key, at, value in _items(node):
        yield (*path, key), _line_and_column(value if isinstance(value, yaml.ScalarNode) else at)
        yield from _marks(value, (*path, key))
    if not path:
        yield (), _line_and_column(node)


def _line_and_column(node: yaml.Node) -> tuple[int, int]:
    """Return line and column of a node, counted from 1."""
    return node.start_mark.line + 1, node.start_mark.column + 1


def _duplicates(node: yaml.Node, path: KeyPath) -> Iterator[tuple[KeyPath, tuple[int, int]]]:
    seen: set[str | int] = set()
    for key, at, value in _items(node):
        if key in seen:
            yield (*path, key), (at.start_mark.line + 1, at.start_mark.column + 1)
        seen.add(key)
        yield from _duplicates(value, (*path, key))


def _unreadable(path: Path, reason: str) -> Problem:
    return Problem(str(path), reason, "a file in UTF-8 YAML", "give the path of a readable file")


def _not_yaml(path: Path, error: Exception) -> Problem:
    mark = getattr(error, "problem_mark", None)
    location = f"{path}:{mark.line + 1}:{mark.column + 1}" if mark else str(path)
    got = str(getattr(error, "problem", None) or error)
    return Problem(
        str(path), got, "YAML", "correct the indentation, quote or bracket at this position", location
    )


_BEGINNINGS = {STACK_KEY: ("target", "local"), FLEET_KEY: ("manager", "hybrid")}


def _missing_key(path: Path, key: str) -> Problem:
    section, example = _BEGINNINGS[key]
    return Problem(
        f"config.{key}",
        "not a mapping",
        f"config: {{{key}: {{schema: 1, name: ..., {section}: ...}}}}",
        f"begin with a copy of stacks/Pulumi.{example}.yaml",
        str(path),
    )


def _duplicate(path: Path, key: KeyPath, mark: tuple[int, int]) -> Problem:
    location = f"{path}:{mark[0]}:{mark[1]}"
    return Problem(show(key), "a duplicate key", "each key once", "remove one of the two", location)
