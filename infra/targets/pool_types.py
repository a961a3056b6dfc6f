"""Describes how a step of a Pulumi operation affects the nodes of a pool: new, resized, changed in place,
replaced one after another, replaced at once, or deleted.

Previews and updates print the description for each pool. Each target maps its resource types of nodes to a
`PoolChanges`.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from infra.common import names

UNKNOWN_SIZE = "?"
_PER_ZONE = frozenset({"nodeCount"})
"""Size properties that count the nodes of one zone."""


class ResourceStep(Protocol):
    """One step of a Pulumi operation: `op` is create, update, delete, create-replacement, …"""

    @property
    def op(self) -> str: ...
    @property
    def keys(self) -> Sequence[str]:
        """Properties that force a replacement."""

    @property
    def old(self) -> Mapping[str, Any]: ...
    @property
    def new(self) -> Mapping[str, Any]: ...


class PoolChanges(Protocol):
    """Reads the affected pools from a step of one resource type."""

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield (pool, description of its change) for each pool that the step changes."""


@dataclass(frozen=True)
class PoolType:
    """A resource type with one node pool, or a part of one, per resource."""

    labels: str
    """Property path of the node labels; a label holds the pool's name."""
    sizes: Sequence[str]
    """Property paths of the node count; the first that is set counts."""
    replaced: str
    """Sentence on what happens to the nodes when the resource is replaced."""
    per_zone: str = ""
    """Property path of the zones by which a per-zone size is multiplied."""
    rolling: Sequence[str] = ()
    """Property paths whose change replaces the nodes one after another."""
    in_place: Sequence[str] = ()
    """Property paths below `rolling` that are changed in place."""

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield (pool, description) if the step changes the pool."""
        labels = _at(step.new or step.old, self.labels)
        pool = labels.get(names.POOL_LABEL) if isinstance(labels, Mapping) else None
        sentence = self._sentence(step)
        if pool and sentence:
            yield str(pool), sentence

    def _sentence(self, step: ResourceStep) -> str:
        before, after = self._size(step.old), self._size(step.new)
        if step.op == "create":
            return f"new{_counted(after)}"
        if step.op == "delete":
            return f"deleted{_counted(before)}"
        resized = f"nodes {before} → {after}, " if before != after else ""
        if step.op == "create-replacement":
            because = f" for {', '.join(step.keys)}" if step.keys else ""
            return f"{resized}replaced{because}: {self.replaced}"
        if step.op != "update":
            return ""
        changed = sorted(_changed(step.old, step.new))
        rolling = [path for path in changed if self._is_rolling(path)]
        if rolling:
            return f"{resized}rolling, nodes are replaced one by one: {', '.join(rolling)}"
        others = [
            path for path in changed if not _is_below(path, [*self.sizes, "scalingConfig", "autoscaling"])
        ]
        return f"{resized}in place" + (f": {', '.join(others)}" if others else "")

    def _size(self, state: Mapping[str, Any]) -> str:
        """Return the number of nodes; empty if the resource has none, `?` if it is unknown."""
        for path in self.sizes:
            number = _at(state, path)
            if number is None:
                continue
            if not isinstance(number, int | float):
                return UNKNOWN_SIZE
            zones = _at(state, self.per_zone) if self.per_zone and path in _PER_ZONE else None
            return str(int(number) * (len(zones) if isinstance(zones, list) else 1))
        return ""

    def _is_rolling(self, path: str) -> bool:
        return _is_below(path, self.rolling) and not _is_below(path, self.in_place)


@dataclass(frozen=True)
class Resized:
    """A resource that only sets a pool's size; create and delete are reported by the node groups."""

    pool: PoolType = PoolType(labels="labels", sizes=["size", "minSize"], replaced="")

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield (pool, description) if the size changes."""
        if step.op == "update" and step.old.get("size") != step.new.get("size"):
            yield from self.pool.changes(step)


def _counted(size: str) -> str:
    return f", {size} node{'s' * (size != '1')}" if size else ""


def _at(state: Mapping[str, Any], path: str) -> Any:  # noqa: ANN401 -- properties are plain values of any type
    value: Any = state
    for key in path.split("."):
        value = value.get(key) if isinstance(value, Mapping) else None
    return value


def _changed(old: Any, new: Any, path: str = "") -> Iterator[str]:  # noqa: ANN401 -- as above
    """Yield the paths at which two states differ. Lists are compared whole; `__defaults` is ignored."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        if old != new:
            yield path
        return
    for key in old.keys() | new.keys():
        if not key.startswith("__"):
            yield from _changed(old.get(key), new.get(key), f"{path}.{key}" if path else key)


def _is_below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)
