"""Decodes properties from the Pulumi engine's protocol, finds the secrets in them, and applies a
remediation's patch to the encoded properties.

Unknown values and secrets travel as markers inside ordinary structures; the markers are part of the protocol.
"""

import re
from collections.abc import Iterator, Mapping

from google.protobuf import struct_pb2

from policies.unknowns import UNKNOWN, Value

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 - a marker, not a secret
UNKNOWNS = frozenset(
    {
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "04da6b54-80e4-46f7-96ec-b56ff0331ba9",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""Marks of unknown values by type: boolean, number, string, array, asset, archive, object."""


def decode(properties: struct_pb2.Struct) -> dict[str, Value]:
    """Plain data: numbers that are whole come as int, unknown values as `UNKNOWN`, secrets unwrapped."""
    return {key: _decode(value) for key, value in properties.fields.items()}


def _decode(value: struct_pb2.Value) -> Value:
    kind = value.WhichOneof("kind")
    if kind == "string_value":
        return UNKNOWN if value.string_value in UNKNOWNS else value.string_value
    if kind == "struct_value":
        fields = value.struct_value.fields
        if not _is_secret(fields):
            return decode(value.struct_value)
        return _decode(fields["value"]) if "value" in fields else UNKNOWN  # encrypted in a state
    if kind == "list_value":
        return [_decode(item) for item in value.list_value.values]
    if kind == "number_value":
        number = value.number_value
        return int(number) if number.is_integer() else number
    return value.bool_value if kind == "bool_value" else None


def secret_paths(properties: struct_pb2.Struct) -> tuple[str, ...]:
    """Paths of the values that are secret, so that no message shows them."""
    # Most resources hold no secret: searching the bytes is far faster than walking the tree.
    if SECRET.encode() not in properties.SerializeToString():
        return ()
    return tuple(path for key, value in properties.fields.items() for path in _secret_paths(value, key))


def _secret_paths(value: struct_pb2.Value, path: str) -> Iterator[str]:
    if value.WhichOneof("kind") == "list_value":
        for index, item in enumerate(value.list_value.values):
            yield from _secret_paths(item, f"{path}[{index}]")
    fields = value.struct_value.fields
    if _is_secret(fields):
        yield path
        return
    for key, item in fields.items():
        yield from _secret_paths(item, f"{path}.{key}")


def _is_secret(fields: Mapping[str, struct_pb2.Value]) -> bool:
    return SIGNATURE in fields and fields[SIGNATURE].string_value == SECRET


def patched(properties: struct_pb2.Struct, patch: Mapping[str, Value]) -> struct_pb2.Struct:
    """A copy with the values of `patch` set at its paths; all else, unknown and secret values too,
    remains.
    """
    copy = struct_pb2.Struct()
    copy.CopyFrom(properties)
    for path, value in patch.items():
        _set(copy, path, value)
    return copy


def _set(struct: struct_pb2.Struct, path: str, value: Value) -> None:
    *parents, last = re.findall(r"[^.\[\]]+", path)
    block: Value = struct
    for name in parents:
        block = _descend(block, name)
    block.update({last: value})


def _descend(struct: struct_pb2.Struct, name: str) -> struct_pb2.Struct:
    """The block called `name`, made where there is none, inside a secret's wrapping too."""
    if name not in struct.fields:
        struct.fields[name].struct_value.SetInParent()
    block = struct.fields[name].struct_value
    return block.fields["value"].struct_value if _is_secret(block.fields) else block
