"""Reports how changes of the embedded cluster's resource affect the nodes of each pool."""

from collections.abc import Iterator, Mapping
from typing import Any

from infra.targets.pool_types import PoolChanges, ResourceStep

EMBEDDED = "trainyard:local:EmbeddedCluster"


class EmbeddedNodes:
    """The nodes of an embedded cluster, each of which names its pool."""

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield each pool that changes, with a sentence on the way."""
        before, after = (_nodes(state) for state in (step.old, step.new))
        for pool in sorted(before.keys() | after.keys()):
            old, new = before.get(pool, []), after.get(pool, [])
            if step.op == "create-replacement":
                because = ", ".join(step.keys)
                yield pool, f"replaced for {because}: its jobs end; checkpoints are retained"
            elif step.op == "update" and old != new:
                resized = f"nodes {len(old)} → {len(new)}, " if len(old) != len(new) else ""
                yield pool, f"{resized}in place"


def _nodes(state: Mapping[str, Any]) -> dict[str, list[Any]]:
    pools: dict[str, list[Any]] = {}
    for node in state.get("nodes") or ():
        pools.setdefault(str(node.get("pool")), []).append(node)
    return pools


POOL_TYPES: Mapping[str, PoolChanges] = {EMBEDDED: EmbeddedNodes()}
