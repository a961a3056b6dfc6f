"""Patches of documents by path: for cases that break a valid document in one place, and golden plans."""

from __future__ import annotations

import copy
import json
import re
from collections.abc import Mapping
from typing import Any

_PART = re.compile(r'\[(\d+)\]|\[("(?:[^"\\]|\\.)*")\]|([^.\[\]]+)')
_PLAIN = re.compile(r'[^.\[\]"]+')


def changed(sound: Mapping[str, Any], patch: Mapping[str, Any]) -> dict[str, Any]:
    """Return the document with the values that `patch` gives by path: `a.b[0]`, `a["b.c"]`.

    Null removes a key or an entry; the index after a list's last one adds an entry.
    """
    broken: Any = copy.deepcopy(dict(sound))
    for path, value in patch.items():
        *parents, last = (_key(*part) for part in _PART.findall(path))
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


def _key(index: str, quoted: str, name: str) -> str | int:
    return int(index) if index else json.loads(quoted) if quoted else name


def difference(old: Any, new: Any, path: str = "") -> dict[str, Any]:
    """Return the shortest patch that turns `old` into `new`, both JSON documents.

    Its only path is "" if the whole document is replaced.
    """
    if json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True):
        return {}
    whole: dict[str, Any] = {path: new}
    parts: dict[str, Any] = {}
    if isinstance(old, dict) and isinstance(new, dict):
        if any(new[key] is None and old.get(key, "") is not None for key in new):
            return whole
        for key in sorted(old.keys() | new.keys()):
            each = (
                f"{path}.{key}".removeprefix(".") if _PLAIN.fullmatch(key) else f"{path}[{json.dumps(key)}]"
            )
            if key in old and key in new:
                parts |= difference(old[key], new[key], each)
            else:
                parts[each] = new.get(key)
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new) and None not in new:
        for index, pair in enumerate(zip(old, new, strict=True)):
            parts |= difference(*pair, f"{path}[{index}]")
    else:
        return whole
    return parts if not path or len(json.dumps(parts)) < len(json.dumps(whole)) else whole
