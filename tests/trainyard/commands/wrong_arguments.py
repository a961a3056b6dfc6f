"""Wrong arguments of `Cluster` with the right types: languages accept them, and the spec refuses them."""

from __future__ import annotations

import re
from collections.abc import Mapping
from copy import deepcopy
from itertools import pairwise
from typing import Any

from tests.tables import table

WRONG: Mapping[str, Any] = table(__file__)
"""Path in a stack → a value that is refused there, together with all others."""


def with_wrong(stack: Mapping[str, Any]) -> dict[str, Any]:
    """Return a stack with all wrong values."""
    changed = deepcopy(dict(stack))
    for path, value in WRONG.items():
        _put(changed, path, value)
    return changed


def _put(data: Any, path: str, value: Any) -> None:
    keys = [int(part) if part.isdigit() else part for part in re.findall(r"[^.\[\]]+", path)]
    for key, below in pairwise(keys):
        data = data[key] if isinstance(data, list) else data.setdefault(key, [] if below == 0 else {})
    if isinstance(data, list) and len(data) == keys[-1]:
        data.append(value)
    else:
        data[keys[-1]] = value
