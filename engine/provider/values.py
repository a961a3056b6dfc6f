"""Converts properties between the engine's wire format and Python (plain values, unknowns, secrets), and
lists the changes between two versions.

The marks are those of `sdk/go/common/resource/plugin/rpc.go` of Pulumi.
"""

import json
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.struct_pb2 import Struct

SIGNATURE = "4dabf18193072939515e22adb298388d"
SECRET = "1b47061264138c4ac30d75fd1eb44270"  # noqa: S105 -- a mark in the protocol, not a secret
UNKNOWN_MARK = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"
"""Mark of an unknown string, which we send for an unknown value of any type."""
UNKNOWN_MARKS = frozenset(
    {
        UNKNOWN_MARK,
        "1c4a061d-8072-4f0a-a4cb-0ff528b18fe7",
        "3eeb2bf0-c639-47a8-9e75-3b44932eb421",
        "6a19a0b0-7e62-4c92-b797-7f8e31da9cc2",
        "030794c1-ac77-496b-92df-f27374a8bd58",
        "e48ece36-62e2-4504-bad9-02848725956a",
        "dd056dcd-154b-4c76-9bd3-c8f88648b5ff",
    }
)
"""Marks of unknown values by type: string, bool, number, array, asset, archive, object."""


class UnknownValue:
    """A value that is known only after the update, at preview."""

    def __repr__(self) -> str:
        return "<known after up>"


UNKNOWN: Final = UnknownValue()


@dataclass(frozen=True)
class Properties:
    """Plain values by name, and the names whose value is or holds a secret."""

    values: Mapping[str, Any]
    secrets: frozenset[str] = frozenset()

    @classmethod
    def decode(cls, struct: Struct) -> "Properties":
        """Decode the engine's properties; a whole property is secret if any part of it is."""
        fields = json_format.MessageToDict(struct)
        return cls(_decode(fields), frozenset(name for name, value in fields.items() if _holds_secret(value)))

    def encode(self, secrets: Collection[str] = ()) -> Struct:
        """Write for the engine, the names in `secrets` marked too; absent values are left out."""
        marked = self.secrets.union(secrets)
        struct = Struct()
        for name, value in self.values.items():
            if value is not None:
                encoded = _encode(value)
                struct[name] = {SIGNATURE: SECRET, "value": encoded} if name in marked else encoded
        return struct

    def unknown(self) -> frozenset[str]:
        """Names whose value is unknown in whole or in part."""
        return frozenset(name for name, value in self.values.items() if is_unknown(value))


@dataclass(frozen=True)
class Change:
    """A difference at one path (`nodes[1].gpus`)."""

    path: str
    old: Any
    new: Any


def changes(old: object, new: object, path: str = "") -> Iterator[Change]:
    """Yield what differs, as deep as both sides have the same shape."""
    if isinstance(old, Mapping) and isinstance(new, Mapping):
        for name in sorted(old.keys() | new.keys()):
            yield from changes(old.get(name), new.get(name), _join(path, name))
    elif isinstance(old, list) and isinstance(new, list) and len(old) == len(new):
        for index, (one, other) in enumerate(zip(old, new, strict=True)):
            yield from changes(one, other, f"{path}[{index}]")
    elif old != new:
        yield Change(path, old, new)


def is_unknown(value: object) -> bool:
    """Whether a value is unknown in whole or in part."""
    if isinstance(value, Mapping):
        return any(is_unknown(part) for part in value.values())
    if isinstance(value, list):
        return any(is_unknown(part) for part in value)
    return value is UNKNOWN


def _join(path: str, name: str) -> str:
    if not name.replace("_", "").isalnum():
        return f"{path}[{json.dumps(name)}]"
    return f"{path}.{name}" if path else name


def _decode(value: Any) -> Any:  # noqa: ANN401 -- JSON
    if isinstance(value, dict):
        if value.get(SIGNATURE) == SECRET:
            return _decode(value.get("value"))
        return {name: _decode(part) for name, part in value.items()}
    if isinstance(value, list):
        return [_decode(part) for part in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return UNKNOWN if isinstance(value, str) and value in UNKNOWN_MARKS else value


def _encode(value: object) -> object:
    if isinstance(value, Mapping):
        return {name: _encode(part) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return [_encode(part) for part in value]
    return UNKNOWN_MARK if value is UNKNOWN else value


def _holds_secret(value: object) -> bool:
    if isinstance(value, dict):
        return value.get(SIGNATURE) == SECRET or any(map(_holds_secret, value.values()))
    return isinstance(value, list) and any(map(_holds_secret, value))
