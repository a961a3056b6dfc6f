"""Writes whole numbers as Kubernetes quantities (2000 is `2k`), and reads them (apimachinery,
resource.Quantity).
"""

from __future__ import annotations

_SUFFIXES = ("", "k", "M", "G")


def written(number: int) -> str:
    """Return a number as the API server and Kueue write it back: in the largest unit that divides it."""
    power = 0
    while number and number % 1000 == 0 and power + 1 < len(_SUFFIXES):
        number, power = number // 1000, power + 1
    return f"{number}{_SUFFIXES[power]}"


def read(text: str | int) -> int:
    """Return the number of a quantity of accelerators, pods or objects. ValueError for any other."""
    for power, suffix in enumerate(_SUFFIXES):
        if suffix and str(text).endswith(suffix):
            return int(str(text).removesuffix(suffix)) * int(1000**power)
    return int(text)
