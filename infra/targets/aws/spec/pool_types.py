"""How pools change on AWS, by EKS's API."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from infra.targets.pool_types import PoolChanges, PoolType, ResourceStep


@dataclass(frozen=True)
class Resized:
    """A resource that is a pool's size alone: of a pool that comes or goes, its groups tell."""

    pool: PoolType

    def changes(self, step: ResourceStep) -> Iterator[tuple[str, str]]:
        """Yield the pool where another size is asked for."""
        if step.op == "update" and step.old.get("size") != step.new.get("size"):
            yield from self.pool.changes(step)


POOL_TYPES: Mapping[str, PoolChanges] = {
    # EKS: UpdateNodegroupVersion rolls, UpdateNodegroupConfig does not; a group that goes drains its nodes.
    "aws:eks/nodeGroup:NodeGroup": PoolType(
        labels="labels",
        sizes=["scalingConfig.maxSize", "scalingConfig.desiredSize"],
        rolling=["launchTemplate", "version", "releaseVersion"],
        replaced="new nodes come first, then the old are drained, 5 min each at most",
    ),
    "trainyard:aws:NodeGroupSize": Resized(PoolType(labels="labels", sizes=["size", "minSize"], replaced="")),
}
