"""Variants of the shipped Google Cloud stacks."""

from typing import Any

from infra.stackfile import Stack, parse
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.gcp.stackfile.target import GcpSpec

ZONE = "europe-west1-b"


def with_provider(stack: Stack, **changes: Any) -> Stack:
    provider = stack.target
    assert isinstance(provider, GcpSpec)
    return stack.model_copy(update={"target": provider.model_copy(update=changes)})


def pool(machine: str, **fields: Any) -> NodePoolSpec:
    usual = {"name": "work", "capacity": "on-demand", "nodes": 2, "machine": machine, "zones": (ZONE,)}
    return NodePoolSpec.model_validate({**usual, **fields})


def with_pools(stack: Stack, *pools: NodePoolSpec) -> Stack:
    """Return a stack with its system pool and these, without queues and validation, for `cluster_plan`."""
    return stack.model_copy(update={"pools": (stack.pool("system"), *pools), "queues": ()})


def queue_on(stack: Stack, *pools: NodePoolSpec, **provider: Any) -> Stack:
    """Return a whole stack with one queue over these pools, validated as a user's file is."""
    data = stack.model_dump(mode="json", by_alias=True, exclude_none=True)
    data["target"] |= provider
    used = (stack.pool("system"), *pools)
    data["pools"] = [each.model_dump(mode="json", exclude_none=True) for each in used]
    flavors = [{"pool": each.name, "quota": each.num_accelerators} for each in pools]
    data["queues"] = [{"name": "gpu", "flavors": flavors}]
    return parse(data)
