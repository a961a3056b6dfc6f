"""What an operation of the engine does to node pools: in place, rolling, or by replacement.

A target says of each type of resource that makes its nodes how it is read, and what its changes do to them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from infra import names

UNKNOWN_SIZE = "?"
_PER_ZONE = frozenset({"nodeCount"})
"""Sizes that are those of one zone."""


class ResourceStep(Protocol):
    """What the engine does to one resource."""

    @property
    def op(self) -> str: ...
    @property
    def keys(self) -> Sequence[str]:
        """Properties that make a replacement necessary."""

    @property
    def old(self) -> Mapping[str, Any]: ...
    @property
    def new(self) -> Mapping[str, Any]: ...


class PoolChanges(Protocol):
    """How the pools of one type of resource change."""

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield each pool of a step's resource that changes, with a sentence on the way."""


@dataclass(frozen=True)
class PoolType:
    """A type of resource of which each is one pool, or a part of one."""

    labels: str
    """Path of the nodes' labels, which name the pool."""
    sizes: Sequence[str]
    """Paths of the number of nodes; the first that is there counts."""
    replaced: str
    """What happens to the nodes when the engine makes it anew."""
    per_zone: str = ""
    """Path of a list of zones, where the size is that of one of them."""
    rolling: Sequence[str] = ()
    """Paths whose change makes new nodes of the old ones, one after another."""
    in_place: Sequence[str] = ()
    """Paths below those that do not."""

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield the pool with a sentence, where it changes."""
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
            return f"goes{_counted(before)}"
        resized = f"num_nodes {before} → {after}, " if before != after else ""
        if step.op == "create-replacement":
            because = f" for {', '.join(step.keys)}" if step.keys else ""
            return f"{resized}replaced{because}: {self.replaced}"
        if step.op != "update":
            return ""
        changed = sorted(_changed(step.old, step.new))
        rolling = [path for path in changed if self._is_rolling(path)]
        if rolling:
            return f"{resized}rolling, nodes are replaced one after another: {', '.join(rolling)}"
        others = [path for path in changed if not _below(path, [*self.sizes, "scalingConfig", "autoscaling"])]
        return f"{resized}in place" + (f": {', '.join(others)}" if others else "")

    def _size(self, state: Mapping[str, Any]) -> str:
        """The number of nodes; empty where the resource says none, `?` where it is not known yet."""
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
        return _below(path, self.rolling) and not _below(path, self.in_place)


@dataclass(frozen=True)
class Resized:
    """A resource that is a pool's size alone: of a pool that comes or goes, its groups tell."""

    pool: PoolType = PoolType(labels="labels", sizes=["size", "minSize"], replaced="")

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield the pool where another size is asked for."""
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
    """Paths at which two states differ; lists are compared whole, the SDK's own marks (`__defaults`) not."""
    if not (isinstance(old, Mapping) and isinstance(new, Mapping)):
        if old != new:
            yield path
        return
    for key in old.keys() | new.keys():
        if not key.startswith("__"):
            yield from _changed(old.get(key), new.get(key), f"{path}.{key}" if path else key)


def _below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)
