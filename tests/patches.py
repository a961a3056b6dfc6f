"""Cases as patches: each breaks a sound document in one place."""

from __future__ import annotations

import copy
import re
from collections.abc import Mapping
from typing import Any


def changed(sound: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the values that `patch` gives by path, `a.b[0]`.

    Null takes a key or an entry out; the index after a list's last one adds an entry.
    """
    broken: Any = copy.deepcopy(dict(sound))
    for path, value in patch.items():
        *parents, last = [int(i) if i else name for name, i in re.findall(r"([^.\[\]]+)|\[(\d+)\]", path)]
        block = broken
        for part in parents:
            block = block.setdefault(part, {}) if isinstance(part, str) else block[part]
        if value is None:
            del block[last]
        elif isinstance(block, list) and last == len(block):
            block.append(value)
        else:
            block[last] = value
    return dict(broken)
