"""Generates the questions that `pulumi new` asks for a template, from the spec.

A question is a path in the template's stack file: its text is the spec's description, and its default the
file's value. Few values are asked for: single ones that depend on no other, and that every user must choose.
Other values to choose are marked `# yours` in the stack file.
"""

from collections.abc import Mapping
from typing import Any

import yaml

from infra.stackfile import parse
from infra.stackfile.answers import KeyPath, path_of
from infra.stackfile.base import Spec
from infra.stackfile.job import JobSpec
from infra.stackfile.source import STACK_KEY
from infra.stackfile.target import ContextCluster
from tests.tables import table

ASKED: Mapping[str, tuple[str, ...]] = table(__file__)
"""Template → paths that are asked for; a template that is not listed asks for names only."""
OF_A_PROGRAM: Mapping[str, Mapping[str, tuple[type[Spec], str]]] = {
    "job": {"context": (ContextCluster, "context"), "team": (JobSpec, "team")}
}
"""Template without a stack file → variable of its program → the model and field that it sets."""


def questions(template: str, section: Any) -> dict[str, dict[str, str]]:
    """Return the questions of a template whose stack file has this section; its names must be filled in."""
    stack = parse(section)
    return {
        f"{STACK_KEY}.{path}": _question(stack, section, path_of(f"{STACK_KEY}.{path}", STACK_KEY) or ())
        for path in ASKED.get(template, ())
    }


def questions_of_program(template: str, project: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Return the questions of a template whose values are its program's own: its Pulumi.yaml as data."""
    return {
        key: {
            "description": model.model_fields[field].description or "",
            "default": str(project["config"][key]["default"]),
        }
        for key, (model, field) in OF_A_PROGRAM.get(template, {}).items()
    }


def with_questions(project: str, asked: Mapping[str, Mapping[str, str]]) -> str:
    """Return the text of a template's Pulumi.yaml with these questions, which are its last lines."""
    head = project.partition("\n  config:")[0].rstrip("\n")
    if not asked:
        return f"{head}\n"
    block = yaml.safe_dump({"config": dict(asked)}, sort_keys=False, width=1000)
    return f"{head}\n" + "".join(f"  {line}\n" for line in block.splitlines())


def _question(stack: Spec, section: Any, path: KeyPath) -> dict[str, str]:
    value: Any = stack
    for part in path:
        section = section[part]
        if isinstance(part, int):
            value = value[part]
            continue
        fields = {field.alias or name: (name, field) for name, field in type(value).model_fields.items()}
        name, field = fields[part]
        value, description = getattr(value, name), field.description or ""
    return {"description": description, "default": str(section)}
