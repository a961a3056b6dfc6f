"""Variants of the shipped Azure stack."""

from typing import Any

from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.stackfile.queue import FlavorSpec, QueueSpec
from infra.targets.azure.stackfile.target import AzureSpec


def with_provider(stack: Stack, **changes: Any) -> Stack:
    """Return the stack with other settings of its provider, validated as a user's are."""
    data = stack.target.model_dump(mode="json", exclude_none=True)
    provider = AzureSpec.model_validate({**data, **{key: _plain(value) for key, value in changes.items()}})
    return stack.model_copy(update={"target": provider})


def _plain(value: Any) -> Any:
    return value.model_dump(mode="json", exclude_none=True) if hasattr(value, "model_dump") else value


def with_pools(stack: Stack, **fields: Any) -> Stack:
    """Return the stack with its system pool, one more pool and its queue, and no job."""
    usual = {"name": "work", "capacity": "on-demand", "nodes": 2, "zones": ("1",)}
    pool = NodePoolSpec.model_validate({**usual, **fields})
    flavor = FlavorSpec(pool=pool.name, quota=pool.num_accelerators)
    queue = QueueSpec(name="gpu", flavors=(flavor,))
    return stack.model_copy(update={"pools": (stack.pool("system"), pool), "queues": (queue,)})
