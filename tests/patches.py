"""Patches of documents by path: for cases that break a valid document in one place."""

import copy
import json
import re
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

_PART = re.compile(r'\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|([^.\[\]]+)')


def changed(sound: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the values that `patch` gives by path: `a.b[0]`, `a["b.c"]`.

    Null removes a key or an entry; the index after a list's last one adds an entry. What lacks is made.
    """
    broken: Any = copy.deepcopy(dict(sound))
    for path, value in patch.items():
        keys = [_key(*part) for part in _PART.findall(path)]
        block, last = broken, keys[-1]
        for part, below in pairwise(keys):
            lacking: Any = [] if below == 0 else {}
            block = block.setdefault(part, lacking) if isinstance(part, str) else block[part]
        if value is None:
            del block[last]
        elif isinstance(block, list) and last == len(block):
            block.append(value)
        else:
            block[last] = value
    return dict(broken)


def _key(index: str, quoted: str, name: str) -> str | int:
    return int(index) if index else json.loads(quoted) if quoted else name
