"""Reads a resource's properties so that a policy notices values that are unknown at preview.

At preview a property may be the output of a resource that does not exist yet. A read of such a value raises
`UnknownProperty`, and the policy evaluator defers the policy to the update, where every input is known.
"""

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache, cached_property
from typing import Any, Final, TypeVar

Value = Any
"""Value of a property: text, number, boolean, list, mapping, None, or `UNKNOWN`."""


class Unknown:
    """Type of the constant for a value that is known only after the update."""

    def __repr__(self) -> str:
        return "<not known at preview>"


UNKNOWN: Final = Unknown()


class UnknownProperty(Exception):  # noqa: N818 - not an error: a state that a policy need not handle
    """A property that a policy needs is not known at preview."""

    def __init__(self, path: str) -> None:
        super().__init__(path)
        self.path = path


Item = TypeVar("Item")


class _KnownFirst(list[Item]):
    """Known items of a list with unknown ones: reading on after them raises `UnknownProperty`."""

    def __init__(self, items: Iterable[Item], unknown: str) -> None:
        super().__init__(items)
        self._unknown = unknown

    def __iter__(self) -> Iterator[Item]:
        yield from super().__iter__()
        raise UnknownProperty(self._unknown)

    def __contains__(self, item: object) -> bool:
        if super().__contains__(item):
            return True
        raise UnknownProperty(self._unknown)

    def __bool__(self) -> bool:
        return True


@dataclass(frozen=True)
class PropertyBlock:
    """A resource's inputs, or one block of them, with its path.

    Nothing that comes out of it is unknown: `get`, `block` and `blocks` raise `UnknownProperty` instead.
    Only `has` answers for an unknown value; for a part of one it raises too.
    """

    data: Mapping[str, Value] = field(default_factory=dict)
    path: str = ""

    @cached_property
    def leaves(self) -> list[tuple[str, str, Value]]:
        """Every value that is no block or list, with its path and the names that say what it is.

        Labels, descriptions, images and IAM documents are left out: they hold no data. The name of a `value`
        is the `name` beside it.
        """
        return list(_leaves(self.data, self.path, ""))

    @cached_property
    def names(self) -> frozenset[str]:
        """The names of all leaves."""
        return frozenset(key for _, key, _ in self.leaves)

    def remembered(self, name: str, find: Callable[[], Iterator[Item]]) -> Iterator[Item]:
        """What `find` yields, found once for all policies; its `UnknownProperty` is raised after it."""
        known = self.__dict__.setdefault("_remembered", {})
        if name not in known:
            found: list[Item] = []
            known[name] = found, None
            try:
                found.extend(find())
            except UnknownProperty as unknown:
                known[name] = found, unknown.path
        found, unknown_path = known[name]
        yield from found
        if unknown_path is not None:
            raise UnknownProperty(unknown_path)

    def has(self, path: str) -> bool:
        """Whether the property is set: an unknown value counts, null does not.

        Raises `UnknownProperty` where a block that may hold it is not known: it may be set or not.
        """
        try:
            return self._read(path)[0] is not None
        except UnknownProperty as unknown:
            if unknown.path == self.at(path):
                return True
            raise

    def get(self, path: str, default: Value = None) -> Value:
        """The value at `path`, such as `rules[0].name`; blocks come as `PropertyBlock`, lists as lists."""
        value, where = self._read(path)
        return default if value is None else _known(value, where)

    def entry(self, key: str, default: Value = None) -> Value:
        """The value of a key taken whole: labels and annotations have dots and slashes in their keys."""
        value = self.data.get(key)
        return default if value is None else _known(value, f"{self.path}[{key}]")

    def block(self, path: str) -> "PropertyBlock":
        """The block at `path`; empty where there is none. A list of one block is that block."""
        value = self.get(path)
        if isinstance(value, list):
            value = value[0] if value else None
        return value if isinstance(value, PropertyBlock) else PropertyBlock({}, self.at(path))

    def blocks(self, path: str) -> "list[PropertyBlock]":
        """The blocks of the list at `path`; a single block is a list of one."""
        return self._items(path, lambda item: item if isinstance(item, PropertyBlock) else None)

    def texts(self, path: str) -> list[str]:
        """The values of the list at `path` as text; a single value is a list of one."""
        return self._items(path, lambda item: item if isinstance(item, str) else str(item))

    def _items(self, path: str, convert: Callable[[Value], Item | None]) -> list[Item]:
        value, where = self._read(path)
        if value is None:
            return []
        items = list(enumerate(value)) if isinstance(value, list) else [(-1, value)]
        known = [(f"{where}[{i}]" if i >= 0 else where, each) for i, each in items if each is not UNKNOWN]
        found = [convert(_known(each, at)) for at, each in known]
        kept = [each for each in found if each is not None]
        unknown = next((index for index, each in items if each is UNKNOWN), None)
        return kept if unknown is None else _KnownFirst(kept, f"{where}[{unknown}]")

    def count(self, path: str) -> int:
        """Return the length of the list at `path`; unknown items count too."""
        value, _ = self._read(path)
        return len(value) if isinstance(value, list) else int(value is not None)

    def at(self, path: str) -> str:
        """The full path of a property of this block, as a message names it."""
        return f"{self.path}.{path}" if self.path else path

    def keys(self) -> Iterator[str]:
        """Names of the properties that are set."""
        return (key for key, value in self.data.items() if value is not None)

    def _read(self, path: str) -> tuple[Value, str]:
        value: Value = self.data
        where = self.path
        if path.isalnum():  # most paths: without steps
            value = value.get(path)
            if value is UNKNOWN:
                raise UnknownProperty(self.at(path))
            return value, self.at(path)
        for name, index in _steps(path):
            if not index and isinstance(value, list) and value:  # a list of one block is that block
                value, where = value[0], f"{where}[0]" if isinstance(value[0], Unknown) else where
            if isinstance(value, Unknown):
                raise UnknownProperty(where)
            where = f"{where}[{index}]" if index else f"{where}.{name}" if where else name
            value = _step(value, name, index)
            if value is None:
                return None, self.at(path)
        if isinstance(value, Unknown):
            raise UnknownProperty(where)
        return value, where


@cache
def _steps(path: str) -> list[tuple[str, str]]:
    """The names and indices of a path; paths are written in policies, so there are few."""
    return re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)


def _step(value: Value, name: str, index: str) -> Value:
    if index:
        return value[int(index)] if isinstance(value, list) and int(index) < len(value) else None
    return value.get(name) if isinstance(value, Mapping) else None


WITHOUT_MEANING = frozenset(
    {
        "annotations", "assumeRolePolicy", "defaultTags", "description", "env", "image", "labels",
        "policyData", "resourceLabels", "Statement", "tags", "tagsAll",
    }
)  # fmt: skip


def _leaves(value: Value, path: str, key: str) -> Iterator[tuple[str, str, Value]]:
    if isinstance(value, dict):
        for name, item in value.items():
            if name not in WITHOUT_MEANING:
                below = f"{key} {name}" if name in ("name", "id", "target") else name
                named = value.get("name") or value.get("configurationName")
                if name == "value" and isinstance(named, str):
                    below = named  # of a variable, a setting or a parameter
                yield from _leaves(item, f"{path}.{name}" if path else name, below)
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _leaves(item, f"{path}[{index}]", key)
    elif isinstance(value, str) and value[:1] in ("{", "[") and value[-1:] in ("}", "]"):
        if '"Statement"' not in value:
            yield from _of_text(value, path, key)
    elif value is not None:
        yield path, key, value


def _of_text(text: str, path: str, key: str) -> Iterator[tuple[str, str, Value]]:
    """The values in a text that is JSON, such as a task's containers; else the text itself."""
    try:
        data = json.loads(text)
    except ValueError:
        data = None
    if data is None:
        yield path, key, text
    else:
        yield from _leaves(data, path, key)


def _known(value: Value, where: str) -> Value:
    return _opened(value, where, PropertyBlock)


def _opened(value: Value, where: str, mapping: Callable[[Mapping[str, Value], str], Value]) -> Value:
    """Check a value: an unknown one raises; `mapping` converts the mappings in it."""
    if isinstance(value, Unknown):
        raise UnknownProperty(where)
    if isinstance(value, Mapping):
        return mapping(value, where)
    if isinstance(value, list):
        return [_opened(item, f"{where}[{index}]", mapping) for index, item in enumerate(value)]
    return value


class KnownValues(Mapping[str, Value]):
    """Plain data that raise `UnknownProperty` when an unknown value is read."""

    def __init__(self, data: Mapping[str, Value], path: str = "") -> None:
        self._data = data
        self._path = path

    def __getitem__(self, key: str) -> Value:
        return _opened(self._data[key], f"{self._path}.{key}" if self._path else key, KnownValues)

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)
