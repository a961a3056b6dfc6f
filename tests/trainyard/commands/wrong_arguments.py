"""Wrong arguments of `Cluster` with the right types: languages accept them, and the spec refuses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Any

WRONG: Mapping[str, Any] = {
    "name": "No Name",
    "target.data_dir": "data",
    "target.network.pod_cidr": "10.0.0.0/99",
    "target.network.service_cidr": "services",
    "target.network.node_cidr": "10.89.0.1/24",
    "pools[0].nodes": -1,
    "pools[1].name": "On Demand",
    "pools[1].accelerator.count": 0,
    "storage.checkpoints.size": 0,
    "storage.checkpoints.snapshot_days": -1,
    "storage.object_store.bucket": "X_",
    "storage.object_store.size": -3,
    "operators.pods_ready": 0,
    "operators.pods_recovery": "5000m",
    "queues[0].name": "GPU!",
    "queues[0].cohort": "No Cohort",
    "queues[0].flavors[0].quota": -1,
    "queues[0].flavors[1].pool": "On Demand",
    "teams[0].name": "A B",
    "teams[0].queue": "G P U",
    "priorities.high": -2147483649,
    "grace.torch-tcp": "1s",
    "unchecked_runtimes[0]": "No Runtime",
}
"""Path in a stack → a value that is refused there, alone and together with all others."""


def with_wrong(stack: Mapping[str, Any], *paths: str) -> dict[str, Any]:
    """Return a stack with the wrong values of these paths, or of all paths if none is given."""
    changed = deepcopy(dict(stack))
    for path in paths or WRONG:
        _put(changed, path, WRONG[path])
    return changed


def _put(data: Any, path: str, value: Any) -> None:
    keys = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
    for key, below in pairwise(keys):
        data = data[key] if isinstance(data, list) else data.setdefault(key, [] if below == 0 else {})
    if isinstance(data, list) and len(data) == keys[-1]:
        data.append(value)
    else:
        data[keys[-1]] = value
