"""Helpers of the purchase modules: the machines of pools, and what a stack creates instead of reusing."""

from collections.abc import Iterator, Mapping
from typing import Any

from catalog.cost import MachinePurchase, Stack
from catalog.quantities import units

Block = Mapping[str, Any]


def machines_of_pools(stack: Stack) -> Iterator[MachinePurchase]:
    """Yield the machines of each pool, all of one type; simulated accelerators cost nothing."""
    for path, pool in pools(stack):
        if (pool.get("accelerator") or {}).get("model") != "simulated":
            yield machines(stack, path, pool, pool.get("machine") or "nothing", num_nodes(pool)[1])


def pools(stack: Stack) -> Iterator[tuple[str, Block]]:
    """Yield each pool with its path."""
    for index, pool in enumerate(stack.get("pools") or ()):
        yield f"pools[{index}]", pool


def num_nodes(pool: Block) -> tuple[int, int]:
    """Return the minimum and the maximum number of nodes."""
    least, _, most = str(pool.get("nodes") or 0).rpartition("..")
    return int(least or most), int(most)


def gibibytes(size: object) -> int | None:
    """Return a size of the stack file in GiB; None where it has none."""
    return units(size, "Gi") if isinstance(size, str) else None


def machines(stack: Stack, path: str, pool: Block, machine: str, number: int) -> MachinePurchase:
    """Return so many machines of a pool."""
    return MachinePurchase(
        name=pool.get("name") or "",
        cloud=target(stack).get("kind") or "",
        region=price_region(stack),
        path=f"{path}.machine",
        machine=machine,
        capacity=pool.get("capacity") or "on-demand",
        number=number,
    )


def target(stack: Stack) -> Block:
    """Return the section of the target."""
    return stack.get("target") or {}


def price_region(stack: Stack) -> str:
    """Return the region, or the zone where that is what prices go by."""
    return target(stack).get("region") or target(stack).get("zone") or ""


def new_filesystems(stack: Stack) -> Iterator[tuple[str, Block]]:
    """Yield key and block of the filesystems that a stack makes; not one that exists: its owner bought it."""
    for key in ("filesystem", "second_filesystem"):
        found: Block = target(stack).get(key) or {}
        if found and not found.get("existing"):
            yield f"target.{key}", found


def makes_cluster(stack: Stack) -> bool:
    """Whether the stack makes its control plane."""
    return not target(stack).get("existing_cluster")


def new_network(stack: Stack) -> Block:
    """Return the network that a stack makes; empty for one that exists."""
    found: Block = target(stack).get("network") or {}
    return {} if found.get("existing") else found
