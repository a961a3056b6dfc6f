"""What an operation does to node pools, and how: in place, rolling, or by replacement."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from infra import names
from local.engine import Result, Step

UNKNOWN_SIZE = "?"


@dataclass(frozen=True)
class PoolType:
    """How a type of resource that makes nodes is read, and what its changes do to them."""

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


POOL_TYPES: Mapping[str, PoolType] = {
    # EKS: UpdateNodegroupVersion rolls, UpdateNodegroupConfig does not; a group that goes drains its nodes.
    "aws:eks/nodeGroup:NodeGroup": PoolType(
        labels="labels",
        sizes=["scalingConfig.desiredSize", "scalingConfig.maxSize"],
        rolling=["launchTemplate", "version", "releaseVersion"],
        replaced="new nodes come first, then the old are drained, 5 min each at most",
    ),
    # GKE: nodePools.update rolls for a node's configuration, by surge; labels and taints are set on nodes.
    "gcp:container/nodePool:NodePool": PoolType(
        labels="nodeConfig.labels",
        sizes=["nodeCount", "autoscaling.totalMaxNodeCount", "initialNodeCount"],
        per_zone="nodeLocations",
        rolling=["nodeConfig", "version"],
        in_place=["nodeConfig.labels", "nodeConfig.taints", "nodeConfig.resourceLabels", "nodeConfig.tags"],
        replaced="its jobs are evicted and the old nodes go before new ones come",
    ),
    # AKS: labels, taints and the count are set on what runs; a version comes node by node.
    "azure-native:containerservice:AgentPool": PoolType(
        labels="nodeLabels",
        sizes=["maxCount", "count"],
        rolling=["orchestratorVersion", "osSKU"],
        replaced="its jobs are evicted and the old nodes go before new ones come",
    ),
    # CoreWeave: Node Pool reference; class and type of its instances cannot be changed.
    "kubernetes:compute.coreweave.com/v1alpha1:NodePool": PoolType(
        labels="spec.nodeLabels",
        sizes=["spec.maxNodes", "spec.targetNodes"],
        replaced="its jobs are evicted and the old nodes go before new ones come",
    ),
    # Machines that are there already get labels and taints, and lose them.
    "kubernetes:core/v1:NodePatch": PoolType(
        labels="metadata.labels", sizes=[], replaced="labels and taints are taken off and set anew"
    ),
}
"""Type → how its changes go, by the clouds' own APIs."""
EMBEDDED = "trainyard:local:EmbeddedCluster"
_PER_ZONE = frozenset({"nodeCount", "initialNodeCount"})
"""Sizes that are those of one zone."""


def pool_changes(result: Result) -> list[str]:
    """Tell each pool that changes and the way, a line each; nothing at the first `up`, where all is new."""
    if not result.changes.get("same"):
        return []
    told: dict[tuple[str, str], list[str]] = {}
    for step in result.steps:
        for pool, sentence in _told(step):
            told.setdefault((pool, sentence), []).append(step.name)
    several = {pool for pool, _ in told if sum(len(told[key]) for key in told if key[0] == pool) > 1}
    return [
        f"pool {pool}: {sentence}{f' ({_listed(made)})' if pool in several else ''}"
        for (pool, sentence), made in sorted(told.items())
    ]


def _told(step: Step) -> Iterator[tuple[str, str]]:
    """Pools of a step's resource, each with how it changes."""
    if step.type == EMBEDDED:
        yield from _embedded(step)
        return
    kind = POOL_TYPES.get(step.type)
    if kind is None:
        return
    labels = _at(step.new or step.old, kind.labels)
    pool = labels.get(names.POOL_LABEL) if isinstance(labels, Mapping) else None
    sentence = _sentence(step, kind)
    if pool and sentence:
        yield str(pool), sentence


def _sentence(step: Step, kind: PoolType) -> str:
    before, after = _size(step.old, kind), _size(step.new, kind)
    if step.op == "create":
        return f"new{_counted(after)}"
    if step.op == "delete":
        return f"goes{_counted(before)}"
    resized = f"num_nodes {before} → {after}, " if before != after else ""
    if step.op == "create-replacement":
        because = f" for {', '.join(step.keys)}" if step.keys else ""
        return f"{resized}replaced{because}: {kind.replaced}"
    if step.op != "update":
        return ""
    changed = sorted(_changed(step.old, step.new))
    rolling = [path for path in changed if _is_rolling(path, kind)]
    if rolling:
        return f"{resized}rolling, nodes are replaced one after another: {', '.join(rolling)}"
    others = [path for path in changed if not _below(path, [*kind.sizes, "scalingConfig", "autoscaling"])]
    return f"{resized}in place" + (f": {', '.join(others)}" if others else "")


def _counted(size: str) -> str:
    return f", {size} node{'s' * (size != '1')}" if size else ""


def _embedded(step: Step) -> Iterator[tuple[str, str]]:
    """Pools of the embedded cluster, whose nodes are all in one resource."""
    before, after = (_nodes(state) for state in (step.old, step.new))
    for pool in sorted(before.keys() | after.keys()):
        old, new = before.get(pool, []), after.get(pool, [])
        if step.op == "create-replacement":
            because = ", ".join(step.keys)
            yield pool, f"replaced for {because}: the cluster is made anew, its jobs end; checkpoints stay"
        elif step.op == "update" and old != new:
            resized = f"num_nodes {len(old)} → {len(new)}, " if len(old) != len(new) else ""
            yield pool, f"{resized}in place"


def _nodes(state: Mapping[str, Any]) -> dict[str, list[Any]]:
    pools: dict[str, list[Any]] = {}
    for node in state.get("nodes") or ():
        pools.setdefault(str(node.get("pool")), []).append(node)
    return pools


def _size(state: Mapping[str, Any], kind: PoolType) -> str:
    """The number of nodes; empty where the resource says none, `?` where it is not known yet."""
    for path in kind.sizes:
        number = _at(state, path)
        if number is None:
            continue
        if not isinstance(number, int | float):
            return UNKNOWN_SIZE
        zones = _at(state, kind.per_zone) if kind.per_zone and path in _PER_ZONE else None
        return str(int(number) * (len(zones) if isinstance(zones, list) else 1))
    return ""


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


def _is_rolling(path: str, kind: PoolType) -> bool:
    return _below(path, kind.rolling) and not _below(path, kind.in_place)


def _below(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}.") for root in roots)


def _listed(made: Sequence[str], most: int = 3) -> str:
    more = f" and {len(made) - most} more" if len(made) > most else ""
    return ", ".join(made[:most]) + more
