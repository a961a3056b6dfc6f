"""The wire format of properties: unknown values, secrets, and patches of remediations."""

from google.protobuf import json_format, struct_pb2

from policies import wire
from policies.policy import Violation
from policies.unknowns import UNKNOWN

UNKNOWN_STRING = "04da6b54-80e4-46f7-96ec-b56ff0331ba9"


def secret(value: object) -> dict[str, object]:
    return {wire.SIGNATURE: wire.SECRET, "value": value}


def struct(data: dict[str, object]) -> struct_pb2.Struct:
    return json_format.ParseDict(data, struct_pb2.Struct())


def test_unknown_values_and_secrets_are_distinguished_from_plain_ones() -> None:
    properties = struct(
        {"a": UNKNOWN_STRING, "b": [1, 2.5, secret("s")], "c": {"d": secret({"e": "f"})}, "g": None}
    )
    assert wire.decode(properties) == {"a": UNKNOWN, "b": [1, 2.5, "s"], "c": {"d": {"e": "f"}}, "g": None}
    assert set(wire.secret_paths(properties)) == {"b[2]", "c.d"}


def test_a_patch_changes_its_path_and_nothing_else() -> None:
    properties = struct({"a": {"b": UNKNOWN_STRING}, "c": secret({"d": "old"}), "e": secret("s")})
    patched = wire.patched(properties, {"a.x": True, "c.d": "new", "f.g.h": 1})
    assert json_format.MessageToDict(patched) == {
        "a": {"b": UNKNOWN_STRING, "x": True},
        "c": secret({"d": "new"}),
        "e": secret("s"),
        "f": {"g": {"h": 1}},
    }
    assert json_format.MessageToDict(properties)["a"] == {"b": UNKNOWN_STRING}


def test_values_that_contain_a_secret_are_not_printed() -> None:
    secrets = ("policy", "tags.owner")
    assert Violation("policy.Statement[0].Action", "s3:*", "less").veiled(secrets).got == "[secret]"
    assert Violation("tags", "ml", "x").veiled(secrets).got == "[secret]"
    assert Violation("policyName", "p", "x").veiled(secrets).got == "p"
