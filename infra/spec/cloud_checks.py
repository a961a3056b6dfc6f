"""What more than one cloud would refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Protocol

from infra.catalog import Machine
from infra.spec.finding import Finding, unknown
from infra.spec.node_pool import NodePoolSpec
from infra.spec.queue import TeamSpec
from infra.spec.storage import StorageSpec


class _Zoned(Protocol):
    @property
    def zones(self) -> tuple[str, ...]: ...


def zones_of_pools_are_the_stacks(provider: _Zoned, pools: tuple[NodePoolSpec, ...]) -> Iterator[Finding]:
    """The cluster's nodes are in the stack's zones: subnets are there only."""
    for index, pool in enumerate(pools):
        for position, zone in enumerate(pool.zones or ()):
            if zone not in provider.zones:
                path = ("pools", index, "zones", position)
                yield unknown(path, zone, provider.zones, "a zone of the stack")


def groups_are_spelled(
    teams: tuple[TeamSpec, ...], pattern: str, allowed: str, fix: str
) -> Iterator[Finding]:
    """A group that nobody is in would be no error to Kubernetes, and let nobody in."""
    for index, team in enumerate(teams):
        for role in ("members", "viewers"):
            for position, group in enumerate(getattr(team, role)):
                if not re.fullmatch(pattern, group):
                    yield ("teams", index, role, position), repr(group), allowed, fix


def claims_fit(capacity_gib: int, storage: StorageSpec, teams: tuple[TeamSpec, ...]) -> Iterator[Finding]:
    """Claims are a promise to each team; the filesystem has the size that was bought."""
    total = storage.checkpoints.size_gib * len(teams)
    if total > capacity_gib:
        got = f"{storage.checkpoints.size_gib} for each of {len(teams)} teams: {total}"
        allowed = f"{capacity_gib} in all: the filesystem's capacity"
        fix = "lower the claims, or buy a larger filesystem"
        yield ("storage", "checkpoints", "size_gib"), got, allowed, fix


def nearest_steps(size: int, step: int) -> str:
    """Name the sizes that are sold on either side of one that is not: `2400 or 4800`."""
    upper = next_step(size, step)
    return f"{upper - step} or {upper}" if upper > step else str(upper)


def next_step(size: int, step: int) -> int:
    """Round up to a multiple of `step`."""
    return -(-size // step) * step


def accelerator_is_the_machines(index: int, pool: NodePoolSpec, machine: Machine) -> Iterator[Finding]:
    """It may be left out; where it is written, it is the machine's."""
    found = (pool.accelerator.model, pool.accelerator.count) if pool.accelerator else (None, 0)
    if found != (machine.accelerator, machine.num_accelerators):
        allowed = f"{machine.num_accelerators} × {machine.accelerator} ({machine.name})"
        fix = "leave `accelerator` out: the machine says it"
        yield ("pools", index, "accelerator"), f"{found[1]} × {found[0]}", allowed, fix


def fabric_is_the_machines(index: int, pool: NodePoolSpec, machine: Machine) -> Iterator[Finding]:
    """Likewise, where a machine has one fabric alone."""
    if pool.fabric != machine.fabric:
        fix = "leave `fabric` out: the machine says it"
        yield ("pools", index, "fabric"), repr(pool.fabric), f"{machine.fabric} ({machine.name})", fix


def the_object_store_has_no_size(kind: str, storage: StorageSpec) -> Iterator[Finding]:
    """It is there already, or grows with what is in it."""
    if storage.object_store.size_gib is not None:
        path = ("storage", "object_store", "size_gib")
        yield path, str(storage.object_store.size_gib), f"nothing (kind: {kind})", "remove the key"
