"""Plain YAML scalars, as the engine's reader (go.yaml.in/yaml/v3, resolve.go) passes them to a program.

It follows YAML 1.2 with remains of 1.1 (octal numbers by a leading zero), and spells times as Go does.
Infinities, which JSON lacks, end the engine before the program starts.
"""

import re
from datetime import datetime, timedelta, timezone
from decimal import Decimal

Scalar = None | bool | int | float | str

_WORDS: dict[str, Scalar] = {
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
}
NO_NUMBER = re.compile(r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)")
"""Infinities, which JSON lacks."""
_BASES = {"0x": 16, "0b": 2, "0o": 8}
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_TIME = re.compile(
    r"([0-9]{4})-([0-9]{1,2})-([0-9]{1,2})"
    r"(?:(?:[Tt](?P<zoned>)|[ ])([0-9]{1,2}):([0-9]{1,2}):([0-9]{1,2})(?:[.,]([0-9]+))?"
    r"(?(zoned)(Z|[-+][0-9]{2}:[0-9]{2})))?"
)
LEADING_ZERO = re.compile(r"[-+]?0[0-9_]*[1-9][0-9_]*")
"""Whole numbers that are read as octal ones, which hardly anybody means."""


def value_of(text: str) -> Scalar:
    """Return what the program gets for an unquoted scalar; a time as its text in Go's format."""
    if text in _WORDS:
        return _WORDS[text]
    if text[0] == ".":
        plain = re.sub("(?<=[0-9])_(?=[0-9])", "", text)
        return _number(plain) if _is_finite(plain) else text
    if text[0] not in "+-0123456789":
        return text
    if (time := time_of(text)) is not None:
        return time
    plain = text.replace("_", "")
    if (number := _whole(plain)) is not None and -(2**63) <= number < 2**64:
        return number if number < 2**63 else _number(str(number))
    return _number(plain) if _is_finite(plain) else text


def is_changed(text: str) -> bool:
    """Whether the program gets an unquoted scalar in another spelling: `1.30` as 1.3, a time as Go's."""
    value = value_of(text)
    return value is not None and not isinstance(value, bool) and str(value) != text


def written_value_of(text: str) -> Scalar:
    """Return the value of an unquoted scalar, or its text where a program would get another one."""
    if not is_changed(text):
        return value_of(text)
    return float(text) if re.fullmatch(r"[-+]?[0-9]+[.][0-9]*", text) else text


def time_of(text: str) -> str | None:
    """Return a time as Go prints it, `2026-12-01 11:30:00 +0000 UTC`; None for text that is no time."""
    if not (found := _TIME.fullmatch(text)):
        return None
    year, month, day, _, hour, minute, second, fraction, zone = found.groups()
    offset = zone if zone and zone != "Z" else "+00:00"
    hours, minutes = int(offset[1:3]), int(offset[4:])
    try:
        clock = [int(each or 0) for each in (year, month, day, hour, minute, second)]
        shift = timedelta(hours=hours, minutes=minutes)
        moment = datetime(*clock, tzinfo=timezone(-shift if offset[0] == "-" else shift))  # type: ignore[misc, arg-type]
    except ValueError:
        return None
    digits = (fraction or "")[:9].rstrip("0")
    name = "UTC" if not shift else f"{moment:%z}"
    return f"{moment:%Y-%m-%d %H:%M:%S}{f'.{digits}' if digits else ''} {moment:%z} {name}"


def _whole(plain: str) -> int | None:
    """Return a whole number in the notation of Go's literals; None for anything else."""
    sign, digits = (plain[0], plain[1:]) if plain[0] in "+-" else ("", plain)
    base = _BASES.get(digits[:2].lower()) or (8 if digits[:1] == "0" and len(digits) > 1 else 10)
    if not re.fullmatch(r"0[xXbBoO][0-9a-fA-F]+|[0-9]+", digits):
        return None
    try:
        return int(f"{sign}{digits[2:] if digits[1:2].isalpha() else digits}", base)
    except ValueError:  # 089, 0b12
        return None


def _number(plain: str) -> int | float:
    """Return a number as the engine's JSON spells it: a whole one below 1e21 has no point and no exponent."""
    number = float(plain)
    return int(Decimal(repr(number))) if number.is_integer() and abs(number) < 1e21 else number


def _is_finite(plain: str) -> bool:
    return bool(_FLOAT.fullmatch(plain)) and abs(float(plain)) != float("inf")
