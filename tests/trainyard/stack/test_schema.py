"""The JSON Schema of stack files: valid files pass, and values that are wrong in themselves are refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml
from jsonschema import Draft202012Validator
from pydantic import ValidationError

from infra.stackfile import load
from infra.stackfile.defaults import completed
from infra.stackfile.machine import declared
from infra.stackfile.source import CONFIG_KEYS, NAMESPACE, STACK_KEY
from infra.stackfile.stack import Stack
from tests.infra.golden import VARIANTS, assert_matches
from tests.infra.stackfile import wrong
from tests.tables import table
from trainyard.stack.pages import COMPLETE, USUAL, pages
from trainyard.stack.schema import as_text, file_schema

ROOT = Path(__file__).parents[3]
SHIPPED = sorted((ROOT / "stacks").glob("Pulumi.*.yaml"))
JOBS = sorted((ROOT / "stacks").glob("*.job.yaml"))
FORM_IN_CODE = set(table(__file__, "form_in_code"))
"""Wrong files whose error JSON Schema cannot express, or that messages explain better than a pattern."""


@cache
def validator() -> Draft202012Validator:
    return Draft202012Validator(file_schema())


def read_as_editors_do(path: Path) -> Any:
    """Load YAML 1.2, which has no timestamps: editors see a string where PyYAML makes a datetime."""
    return yaml.load(path.read_text().replace("${PROJECT}", "project"), Loader=_WithoutTimes)


class _WithoutTimes(yaml.SafeLoader):
    pass


_WithoutTimes.yaml_implicit_resolvers = {
    first: [(tag, form) for tag, form in resolvers if not tag.endswith(":timestamp")]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def is_wrong_by_itself(data: Any) -> bool:
    if any(key.startswith(NAMESPACE) and key not in CONFIG_KEYS for key in data["config"]):
        return True
    stack = data["config"][STACK_KEY]
    try:
        Stack.model_validate(completed(stack).data, context={"machines": declared(stack)})
    except ValidationError:
        return True
    return False


def wrong_stacks() -> dict[str, Any]:
    """Return the wrong stack files that are YAML and have a stack, by name."""
    found = {case.name: {"config": dict(case.config)} for each in wrong.STACKS for case in wrong.cases(each)}
    for path in wrong.WHOLE:
        try:
            data = read_as_editors_do(path)
        except yaml.YAMLError:
            continue
        if isinstance(data, dict) and STACK_KEY in (data.get("config") or {}):
            found[path.stem] = data
    return found


@pytest.mark.parametrize(
    "path",
    [*SHIPPED, *VARIANTS, *sorted(ROOT.glob("templates/*/stacks/*.yaml"))],
    ids=lambda path: str(path.name),
)
def test_a_valid_file_is_accepted(path: Path) -> None:
    assert [error.message for error in validator().iter_errors(read_as_editors_do(path))] == []


@pytest.mark.parametrize("path", JOBS, ids=lambda path: str(path.name))
def test_a_shipped_job_is_accepted_by_the_part_of_the_schema_that_it_names(path: Path) -> None:
    first, data = path.read_text().partition("\n")[0], read_as_editors_do(path)
    assert first == "# yaml-language-server: $schema=schema.json#/$defs/JobSpec"
    schema = file_schema()
    job = Draft202012Validator({**schema["$defs"]["JobSpec"], "$defs": schema["$defs"]})
    assert [error.message for error in job.iter_errors(data)] == []
    assert not job.is_valid({**data, "config": "digits"})


def test_a_value_that_is_wrong_in_itself_is_refused() -> None:
    stacks = wrong_stacks()
    by_itself = {name for name, data in stacks.items() if is_wrong_by_itself(data)}
    refused = {name for name, data in stacks.items() if not validator().is_valid(data)}
    assert len(by_itself) > 90
    assert refused == by_itself - FORM_IN_CODE


@pytest.mark.parametrize(("change", "path"), table(__file__, "wrong_keys"), ids=lambda value: str(value)[:40])
def test_an_error_is_at_its_key(change: dict[str, Any], path: list[str]) -> None:
    data = read_as_editors_do(ROOT / "stacks" / "Pulumi.local.yaml")
    data["config"][STACK_KEY] |= change
    (error,) = validator().iter_errors(data)
    assert list(error.absolute_path) == ["config", STACK_KEY, *path]


def test_the_stored_schema_is_that_of_the_code() -> None:
    Draft202012Validator.check_schema(file_schema())
    assert_matches(as_text(file_schema()), ROOT / "stacks" / "schema.json")


@pytest.mark.parametrize("name", found := pages(file_schema()))
def test_the_pages_are_those_of_the_code(name: str) -> None:
    assert_matches(found[name], ROOT / "docs" / f"{name}.md")


def test_the_complete_file_is_valid_and_has_the_keys_that_most_people_need() -> None:
    assert load(COMPLETE).name == "training"
    text = COMPLETE.read_text()
    missing = {path for path in USUAL if f"{path.rpartition('.')[2]}:" not in text}
    assert (len(USUAL), missing) == (25, {"pools.accelerator"}), "which the machine determines"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: str(path.name))
def test_a_shipped_file_names_its_schema(path: Path) -> None:
    first = path.read_text().splitlines()[0]
    assert (path.parent / first.removeprefix("# yaml-language-server: $schema=")).is_file()
