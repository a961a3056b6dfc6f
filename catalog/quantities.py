"""Sizes and durations as Kubernetes writes them: `20Gi` (resource.Quantity), `1h30m` (Go)."""

import re
from collections.abc import Mapping

_SIZES: Mapping[str, int] = {"Mi": 1, "Gi": 1024, "Ti": 1024**2, "Pi": 1024**3}
"""Unit of a size → mebibytes."""
_TIMES: Mapping[str, int] = {"h": 3600, "m": 60, "s": 1}
"""Unit of a duration → seconds."""
SIZE = rf"[0-9]+({'|'.join(_SIZES)})"
"""Pattern of a size."""
DURATION = r"(?=[0-9])([0-9]+h)?([0-9]+m)?([0-9]+s)?"
"""Pattern of a duration."""


def units(text: str, unit: str) -> int:
    """Return a size or a duration in whole units: `units("2Ti", "Gi")` is 2048, `units("1h30m", "m")` is 90.

    Raises:
        ValueError: the text is neither, or no whole number of units; says what to write.
    """
    known = _SIZES if unit in _SIZES else _TIMES
    if not re.fullmatch(SIZE if unit in _SIZES else DURATION, text):
        raise ValueError(f"write it as Kubernetes does, such as {'20' if unit in _SIZES else '30'}{unit}")
    total = sum(int(number) * known[each] for number, each in re.findall(r"([0-9]+)([A-Za-z]+)", text))
    whole, rest = divmod(total, known[unit])
    if rest:
        raise ValueError(f"write a whole number of {unit}")
    return whole
