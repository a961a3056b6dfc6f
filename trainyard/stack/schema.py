"""`trainyard stack validate --schema json`: generates the JSON Schema of stack files and fleet files.

It is made from the models that read a stack file (infra/stackfile), so that both have the same keys, types,
bounds and descriptions. Relations between sections (a job in a queue that does not exist) are checked by
`trainyard stack validate` only.
"""

import json
from typing import Any

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue, models_json_schema
from pydantic_core.core_schema import DictSchema

from infra.stackfile.fleet import Fleet
from infra.stackfile.job import JobSpec
from infra.stackfile.source import BACKEND_KEY, CONFIG_KEYS, FLEET_KEY, NAMESPACE, STACK_KEY
from infra.stackfile.stack import Stack
from policies.config import DEFER, REFUSE
from policies.exemptions import FIELDS, REQUIRED
from trainyard.stack.state import SCHEMES

DIALECT = "https://json-schema.org/draft/2020-12/schema"
REFERENCES = "#/$defs/{model}"
_ANSWERS = rf"^({STACK_KEY}|{FLEET_KEY})\."
"""Pattern of the keys that infra/stackfile/answers.py reads."""
POLICY_KEYS: dict[str, Any] = {
    "trainyard:residency": {
        "description": "regions where the stack's data may be stored; only narrows the organisation's list",
        "type": "object",
        "required": ["allowed"],
        "properties": {
            "allowed": {
                "description": "regions, patterns of regions (eu-*) or a jurisdiction (in:eu, in:de)",
                "type": "array",
                "items": {"type": "string"},
            }
        },
    },
    "trainyard:exemptions": {
        "description": "approved exemptions from policies, each with an owner and an expiry date",
        "type": "array",
        "items": {
            "type": "object",
            "additionalProperties": False,
            "required": list(REQUIRED),
            "properties": {field: {"type": "string", "minLength": 1} for field in FIELDS},
        },
    },
    "trainyard:unknown": {
        "description": "whether a value that is not known at preview is judged in the update, or refused",
        "enum": [DEFER, REFUSE],
    },
    "trainyard:purchases": {
        "description": "names of resources that may buy capacity or a commitment, which cannot be cancelled",
        "type": "array",
        "items": {"type": "string"},
    },
}
"""Schemas of the keys in the same namespace that the policies read (policies/config.py)."""


class _Generator(GenerateJsonSchema):
    """Without titles, which repeat the keys; and strict about the keys that a user chooses."""

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ANN401 -- pydantic's own signature
        """Set none."""
        return False

    def dict_schema(self, schema: DictSchema) -> JsonSchemaValue:
        """Refuse a key that has not the form of its type; pydantic lets it pass."""
        found = super().dict_schema(schema)
        return {**found, "additionalProperties": False} if "patternProperties" in found else found


def file_schema() -> dict[str, Any]:
    """Return the JSON Schema of a stack file (`Pulumi.<stack>.yaml`); a job file's is in its `$defs`.

    Keys of other namespaces are the engine's, and are not constrained.
    """
    models, definitions = models_json_schema(
        [(Stack, "validation"), (Fleet, "validation"), (JobSpec, "validation")],
        schema_generator=_Generator,
        ref_template=REFERENCES,
    )
    ours = {
        STACK_KEY: models[Stack, "validation"],
        FLEET_KEY: models[Fleet, "validation"],
        **POLICY_KEYS,
        BACKEND_KEY: {
            "description": "URL of the state backend, as `trainyard stack state-bucket` prints it; default: "
            "this host",
            "type": "string",
            "pattern": f"^({'|'.join(SCHEMES)})://",
        },
    }
    return {
        "$schema": DIALECT,
        "title": "Trainyard stack file",
        "type": "object",
        "required": ["config"],
        "properties": {
            "config": {
                "type": "object",
                "properties": ours,
                "patternProperties": {
                    _ANSWERS: {
                        "description": "answer to a question of `pulumi new`; overrides that path's value",
                        "type": ["string", "number", "boolean"],
                    }
                },
                "propertyNames": {
                    "anyOf": [
                        {"enum": list(CONFIG_KEYS)},
                        {"pattern": _ANSWERS},
                        {"not": {"pattern": f"^{NAMESPACE}"}},
                    ]
                },
                "oneOf": [{"required": [STACK_KEY]}, {"required": [FLEET_KEY]}],
            }
        },
        "$defs": {name: _without_titles(each) for name, each in sorted(definitions["$defs"].items())},
    }


def _without_titles(definition: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in definition.items() if key != "title"}


def as_text(schema: dict[str, Any]) -> str:
    """Return a schema as the text of its file."""
    return json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
