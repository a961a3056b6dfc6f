"""Converts Pulumi's wire format to plain values: unknowns are preserved, secrets unwrapped."""

from typing import Any

from google.protobuf import json_format, struct_pb2

UNKNOWN = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Constant by which the protocol represents a value that is not known yet."""
_SIGNATURE = "4dabf18193072939515e22adb298388d"
_SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 -- a marker of the protocol


def plain(properties: struct_pb2.Struct) -> dict[str, Any]:
    """Return properties as Python values: whole numbers as `int`, the text of secrets in the clear."""
    opened: dict[str, Any] = _opened(json_format.MessageToDict(properties))
    return opened


def has_unknown(value: Any) -> bool:
    """Whether any part of a value is not known yet."""
    if isinstance(value, dict):
        return any(has_unknown(each) for each in value.values())
    if isinstance(value, list):
        return any(has_unknown(each) for each in value)
    return isinstance(value, str) and UNKNOWN in value


def _opened(value: Any) -> Any:
    if isinstance(value, dict):
        if value.get(_SIGNATURE) == _SECRET:
            return _opened(value.get("value"))
        return {key: _opened(each) for key, each in value.items()}
    if isinstance(value, list):
        return [_opened(each) for each in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value
