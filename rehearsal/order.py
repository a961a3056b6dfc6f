"""Computes the critical path of a rehearsal: the chain with the most creations, in which each waits for the
one before it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rehearsal.fake_provider import Creation


@dataclass(frozen=True)
class ChainStep:
    """One resource of a chain."""

    urn: str
    seconds: float
    """Duration of the creation in this rehearsal, not in a cloud."""

    @property
    def label(self) -> str:
        """Type and name: `eks/cluster:Cluster training`."""
        parts = self.urn.split("::")
        return f"{parts[2].rpartition('$')[2].partition(':')[2]} {parts[3]}"


def critical_path(
    resources: Sequence[Mapping[str, Any]], creations: Sequence[Creation]
) -> tuple[ChainStep, ...]:
    """Return the longest chain of creations of which each waits for the one before it.

    Longest by the number of resources: times in a rehearsal are not those of a cloud.
    """
    seconds = {each.urn: each.ended - each.started for each in creations}
    needs = {each["urn"]: _needs(each) for each in resources}
    chains: dict[str, tuple[str, ...]] = {}
    for each in resources:  # a state lists a resource after those that it needs
        urn = each["urn"]
        before = max((chains.get(need, ()) for need in needs[urn]), key=len, default=())
        chains[urn] = (*before, urn) if urn in seconds else before
    longest = max(chains.values(), key=len, default=())
    return tuple(ChainStep(urn, seconds[urn]) for urn in longest)


def _needs(resource: Mapping[str, Any]) -> set[str]:
    provider = str(resource.get("provider", "")).rpartition("::")[0]
    return {*resource.get("dependencies", ()), *([provider] if provider else [])}
