"""Writes whole numbers as Kubernetes quantities (2000 is `2k`), and reads them (apimachinery,
resource.Quantity); reads them from the engine's floats, too.
"""

from collections.abc import Mapping
from typing import Any

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


def whole_numbers(value: Any) -> Any:  # noqa: ANN401 -- JSON
    """Return a value with whole numbers as ints: the engine's protocol has floats only."""
    if isinstance(value, Mapping):
        return {key: whole_numbers(part) for key, part in value.items()}
    if isinstance(value, list):
        return [whole_numbers(part) for part in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
