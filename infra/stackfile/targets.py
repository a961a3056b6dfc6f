"""Validates the `target` section with the model of the target that its `kind` names."""

from typing import Annotated, Any

from pydantic import BeforeValidator, GetJsonSchemaHandler, SerializeAsAny
from pydantic_core import CoreSchema, core_schema

from infra.common.target_registry import TARGETS, target_of
from infra.errors import did_you_mean
from infra.stackfile.base import wrong
from infra.stackfile.target import TargetSpec


def target_model(data: object) -> type[TargetSpec]:
    """Return the spec class of what `target:` holds; the base class where `kind` names none."""
    kind = str(data.get("kind")) if isinstance(data, dict) else ""
    return target_of(kind).spec if kind in TARGETS else TargetSpec


def _by_kind(data: Any) -> Any:  # noqa: ANN401 -- pydantic hands over whatever the user wrote
    """Read the target with its target's own class, so that each key is checked against that target."""
    if not isinstance(data, dict) or "kind" not in data:
        return data
    kind = str(data["kind"])
    if kind not in TARGETS:
        fix = did_you_mean(kind, TARGETS, "name one of the targets that this release has")
        raise wrong("target_kind", " or ".join(TARGETS), fix, "kind")
    return target_of(kind).spec.model_validate(data)


class _SchemaByKind:
    """The same choice in JSON Schema: `kind` determines the target's keys."""

    @staticmethod
    def __get_pydantic_json_schema__(core: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        """Use `if` and `then`, not `oneOf`: a validator then reports the wrong key, not every target's."""
        specs = {kind: target_of(kind).spec for kind in TARGETS}
        for spec in specs.values():
            spec.model_rebuild()
        union = core_schema.union_schema([spec.__pydantic_core_schema__ for spec in specs.values()])
        return {
            "type": "object",
            "required": ["kind"],
            "properties": {"kind": {"enum": list(specs), "description": "which target"}},
            "allOf": [
                {"if": {"properties": {"kind": {"const": kind}}}, "then": each}
                for kind, each in zip(specs, handler(union)["anyOf"], strict=True)
            ],
        }


AnyTarget = Annotated[SerializeAsAny[TargetSpec], BeforeValidator(_by_kind), _SchemaByKind]
