"""Generates the components and their types in the plugin's Pulumi schema, from the JSON Schema of stack
files.

So the types follow the models that read stack files. What only a run can check (a pattern, a bound, a machine
type in its region) is in the descriptions.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from engine.provider import service
from infra.stackfile.source import FLEET_KEY, STACK_KEY
from trainyard.component.outputs import MODULE, OUTPUTS, output_types
from trainyard.stack.schema import REFERENCES, file_schema

MOST_CHOICES = 12
"""Maximum number of choices of an enum; a longer list (machines, regions) becomes text, since no editor can
show it."""
COMPONENTS = {
    "Cluster": ("stack", "Stack", f"the value of `{STACK_KEY}` in a stack file"),
    "Fleet": ("fleet", "Fleet", f"the value of `{FLEET_KEY}` in a stack file"),
    "TrainingJob": ("job", "JobSpec", "the content of a job.yaml"),
}
"""Component → its input, the model that reads the input, and where else the same value is written."""
OTHER_INPUTS = {
    "TrainingJob": {
        "queues": {
            # Values of any type: Python's type checkers do not accept an output type as an input type.
            "type": "object",
            "additionalProperties": {"$ref": "pulumi.json#/Any"},
            "description": "the output `queues` of the job's Cluster, to validate team and queue in the"
            " preview; default: they are validated against the cluster",
        }
    }
}
"""Component → its optional inputs."""
DESCRIPTIONS = {
    "Cluster": "A GPU training cluster: node pools, fabric, checkpoint storage, operators and queues.",
    "Fleet": "A multi-cluster fleet (MultiKueue): jobs of a manager run on permitted workers.",
    "TrainingJob": "One training job in a team's queue, on the cluster of the program's Kubernetes provider.",
}
PATH = Path(service.__file__).parent / "schema.json"
"""The plugin's schema file: resource types are written by hand, components and their types by this module."""
_PLAIN = {"string": "string", "integer": "integer", "number": "number", "boolean": "boolean"}

Schema = Mapping[str, Any]


def package_schema() -> dict[str, Any]:
    """Return the plugin's schema with components and types generated from the current models."""
    written = json.loads(PATH.read_text())
    ours = {part: _without_ours(written[part]) for part in ("types", "resources")}
    types, components = _Types(file_schema()), {}
    for name, (key, model, description) in COMPONENTS.items():
        value = types.of({"$ref": REFERENCES.format(model=model)}, name)
        components[MODULE + name] = {
            "isComponent": True,
            "description": DESCRIPTIONS[name],
            "inputProperties": {key: {**value, "description": description}, **OTHER_INPUTS.get(name, {})},
            "requiredInputs": [key],
            "properties": {each: dict(declared) for each, declared in OUTPUTS[name].items()},
            "required": [*OUTPUTS[name]],
        }
    return {
        **written,
        "types": {**ours["types"], **dict(sorted({**types.made, **output_types()}.items()))},
        "resources": {**ours["resources"], **components},
        "language": {
            "python": {"respectSchemaVersion": True, "pyproject": {"enabled": True}},
            "nodejs": {"respectSchemaVersion": True},
        },
    }


def as_text(schema: Schema) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _without_ours(part: Schema) -> dict[str, Any]:
    return {token: each for token, each in part.items() if not token.startswith(MODULE)}


class _Types:
    """Translates JSON Schema to Pulumi types; `made` collects the named ones."""

    def __init__(self, schema: Schema) -> None:
        self._definitions: Mapping[str, Schema] = schema["$defs"]
        self.made: dict[str, Any] = {}

    def of(self, value: Schema, owner: str) -> dict[str, Any]:
        """Return the type of a value; `owner` names an enum that has no name in the JSON Schema."""
        if "$ref" in value:
            return self._object(value["$ref"].rpartition("/")[2])
        if "allOf" in value:
            return self._by_kind([each["then"] for each in value["allOf"]], "kind", owner)
        if choices := _choices(value):
            return self._choice(choices, value, owner)
        if "enum" in value or "const" in value:
            return self._enum(value, owner)
        return self._plain(value, owner)

    def _plain(self, value: Schema, owner: str) -> dict[str, Any]:
        if value.get("type") == "array":
            return {"type": "array", "items": self.of(value.get("items") or {}, owner)}
        if value.get("type") == "object":
            return {"type": "object", "additionalProperties": self.of(_below(value), owner)}
        return {"type": _PLAIN[value["type"]]} if "type" in value else {"$ref": "pulumi.json#/Any"}

    def _choice(self, choices: list[Schema], value: Schema, owner: str) -> dict[str, Any]:
        if len(choices) == 1:
            return self.of(choices[0], owner)
        if "discriminator" in value:
            return self._by_kind(choices, value["discriminator"]["propertyName"], owner)
        types = {each.get("type") for each in choices}
        ours = [each for each in choices if each.get("type") != "integer" or "number" not in types]
        return {"oneOf": [self.of(each, owner) for each in ours]}

    def _by_kind(self, choices: list[Schema], key: str, owner: str) -> dict[str, Any]:
        found = [self.of(each, owner) for each in choices]
        mapping = {}
        for each, type_ in zip(choices, found, strict=True):
            kind = self._definitions[each["$ref"].rpartition("/")[2]]["properties"][key]
            for word in kind.get("enum", [kind.get("const")]):
                mapping[word] = type_["$ref"]
        return {"oneOf": found, "discriminator": {"propertyName": key, "mapping": mapping}}

    def _enum(self, value: Schema, owner: str) -> dict[str, Any]:
        words = value.get("enum", [value.get("const")])
        if not all(isinstance(word, str) for word in words):
            return {"type": "integer"}
        if len(words) == 1 or len(words) > MOST_CHOICES:
            return {"type": "string"}
        token = MODULE + owner
        self.made[token] = {
            "type": "string",
            "enum": [{"name": _enumerator(word), "value": word} for word in words],
        }
        # A relaxed enum, as other providers have: a program may write a plain string, which Python's type
        # checkers would refuse for an enum.
        return {"type": "string", "oneOf": [{"type": "string"}, {"$ref": f"#/types/{token}"}]}

    def _object(self, name: str) -> dict[str, Any]:
        definition, token = self._definitions[name], MODULE + name.removesuffix("Spec")
        if "enum" in definition:
            return self._enum(definition, name)
        if token not in self.made:
            self.made[token] = {}  # a type may contain itself
            title = name.removesuffix("Spec")
            self.made[token] = {
                "type": "object",
                "description": " ".join(str(definition.get("description", "")).split()),
                "properties": {
                    key: self._property(key, each, title) for key, each in definition["properties"].items()
                },
                "required": sorted(definition.get("required", ())),
            }
        return {"$ref": f"#/types/{token}"}

    def _property(self, key: str, value: Schema, owner: str) -> dict[str, Any]:
        described = {"description": _described(value)} if _described(value) else {}
        constant = {"const": value["const"]} if isinstance(value.get("const"), str) else {}
        return {**self.of(value, owner + _camel(key, "_")), **constant, **described}


def _choices(value: Schema) -> list[Schema]:
    """Return the alternatives of a value that is one of several things; null is not one of them."""
    several = [*value.get("anyOf", ()), *value.get("oneOf", ())]
    return [each for each in several if each.get("type") != "null"]


def _below(value: Schema) -> Schema:
    """Return what each key of a mapping holds."""
    below = value.get("additionalProperties") or next(iter(value.get("patternProperties", {}).values()), None)
    return below if isinstance(below, Mapping) else {}


def _described(value: Schema) -> str:
    """Return a value's meaning, and its allowed values if its type cannot express them."""
    return f"{value.get('description', '')}{_allowed(value)}".strip()


def _allowed(value: Schema) -> str:
    bounds = [value, *_choices(value)]
    words = {"minimum": "{} or more", "maximum": "{} or less", "pattern": "matches `{}`"}
    found = [text.format(each[word]) for each in bounds for word, text in words.items() if word in each]
    return f" ({', '.join(found)})" if found else ""


def _enumerator(word: str) -> str:
    """Return a name that every language takes: `OnDemand`, `V135`."""
    name = _camel(word, "-._ ")
    return f"V{name}" if name[:1].isdigit() else name


def _camel(text: str, separators: str) -> str:
    for separator in separators:
        text = text.replace(separator, " ")
    return "".join(word[:1].upper() + word[1:] for word in text.split())
