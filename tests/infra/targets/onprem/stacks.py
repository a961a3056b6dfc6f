"""Variants of the shipped on-premises stack."""

import copy
from typing import Any

from infra.stackfile import Stack, parse


def on_infiniband(stack: Stack, fabric: str, **nics: Any) -> Stack:
    """Return the stack with only its NVIDIA pool and another access to NICs, validated as users' are."""
    data = stack.model_dump(mode="json", by_alias=True, exclude_none=True)
    system, h100, _ = data["pools"]
    provider = copy.deepcopy(data["target"])
    del provider["amd"]
    provider["leaves"] = [
        {**leaf, "nodes": {pool: nodes for pool, nodes in leaf["nodes"].items() if pool != "mi300x"}}
        for leaf in provider["leaves"]
    ]
    provider["infiniband"] |= nics
    return parse(
        {
            **data,
            "target": provider,
            "pools": [system, {**h100, "fabric": fabric}],
            "queues": data["queues"][:1],
            "teams": data["teams"][:1],
        }
    )
