"""Describes how an engine operation changes node pools, one line each."""

from collections.abc import Mapping, Sequence

from engine.events import OperationResult
from infra.targets.pool_types import PoolChanges


def pool_changes(result: OperationResult, pool_types: Mapping[str, PoolChanges]) -> list[str]:
    """Name each pool that changes and the way, a line each; nothing at the first `up`, where all is new.

    `pool_types`: the target's (`Target.pool_types`), by type of resource.
    """
    if not result.changes.get("same"):
        return []
    resources: dict[tuple[str, str], list[str]] = {}
    for step in result.steps:
        if kind := pool_types.get(step.type):
            for pool, sentence in kind.changes(step):
                resources.setdefault((pool, sentence), []).append(step.name)
    several = {
        pool for pool, _ in resources if sum(len(resources[key]) for key in resources if key[0] == pool) > 1
    }
    return [
        f"pool {pool}: {sentence}{f' ({_listed(names)})' if pool in several else ''}"
        for (pool, sentence), names in sorted(resources.items())
    ]


def _listed(names: Sequence[str], most: int = 3) -> str:
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
