"""Programs of platform engineers: sound ones pass in preview and in update, ordinary mistakes do not."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from policies.config import EvaluatedStack
from policies.evaluation import Finding, PolicyEvaluator
from policies.pack import POLICIES
from policies.policy import Resource
from policies.related_resources import RelatedResource, RelatedResources
from policies.unknowns import UNKNOWN, PropertyBlock
from tests import patches
from tests.policies.corpus import CONFIG, FOLDER, read

PROGRAMS = read(FOLDER.parent / "programs.yaml")
DIGEST = f"sha256:{'a' * 64}"


def given(value: Any, *, known: bool) -> Any:
    """Return a property as the engine sends it; in an update, outputs are known."""
    if isinstance(value, Mapping):
        if "$of" not in value:
            return {name: given(item, known=known) for name, item in value.items()}
        made = value.get("is", f"{value['$of']}-1a2b3c4")
        made = json.dumps(made) if isinstance(made, Mapping) else made
        return given(made, known=known) if known else UNKNOWN
    if isinstance(value, list):
        return [given(item, known=known) for item in value]
    if value == "$unknown":
        return "another-1a2b3c4" if known else UNKNOWN
    return value.replace("$digest", DIGEST) if isinstance(value, str) else value


def stopping(program: Mapping[str, Any], *, known: bool) -> Iterator[Finding]:
    """Yield what stops a preview of the program, or an update (`known`)."""
    config = {**CONFIG, "trainyard:unknown": "defer", **program.get("config", {})}
    stack = EvaluatedStack(
        config={key: json.dumps(value) for key, value in config.items()},
        environment={"AWS_REGION": "eu-west-1"},
        dry_run=not known,
    )
    evaluator = PolicyEvaluator(POLICIES, parameters=program.get("parameters", {}))
    members: list[RelatedResource[Resource]] = []
    found: list[Finding] = []
    for index, each in enumerate(program["resources"]):
        name, props = each.get("name", f"resource-{index}"), each["props"]
        block = PropertyBlock(given(props, known=known))
        resource = Resource(each["type"], name, name, block, stack=stack, protect=each.get("protect", False))
        made = {"bucket": f"{name}-1a2b3c4", **block.data, "id": f"{name}-1a2b3c4"} if known else {}
        origins = {key: (str(value.get("$of")),) for key, value in props.items() if isinstance(value, dict)}
        members.append(RelatedResource(resource, PropertyBlock(made), origins))
        found += evaluator.evaluate(resource)
    found += evaluator.evaluate_stack(RelatedResources(members))
    yield from (finding for finding in found if finding.stops)


@pytest.mark.parametrize("program", PROGRAMS["sound"], ids=lambda program: program["name"])
def test_a_sound_program_passes_in_preview_and_update(program: Mapping[str, Any]) -> None:
    for known in (False, True):
        assert [f"{each.resource.name}: {each.message}" for each in stopping(program, known=known)] == []


TWINS = [program for program in PROGRAMS["sound"] if "broken" in program]


@pytest.mark.parametrize("program", TWINS, ids=lambda program: program["name"])
def test_a_broken_twin_of_a_sound_program_is_refused(program: Mapping[str, Any]) -> None:
    change = program["broken"]
    resources = [
        {**each, "props": patches.changed(each["props"], change["set"])}
        if change["in"] in (each.get("name"), f"resource-{index}")
        else each
        for index, each in enumerate(program["resources"])
    ]
    found = {finding.policy.name for finding in stopping({**program, "resources": resources}, known=True)}
    assert found == set(change["by"].split())


@pytest.mark.parametrize("mistake", PROGRAMS["mistakes"], ids=lambda each: f"{each['policy']} {each['type']}")
def test_a_mistake_is_refused_before_the_resource_exists(mistake: Mapping[str, Any]) -> None:
    program = {**mistake, "resources": [mistake]}
    waits = "$of" in str(mistake["props"])
    policies = {mistake["policy"]} if isinstance(mistake["policy"], str) else {*mistake["policy"]}
    assert {f.policy.name for f in stopping(program, known=waits)} == policies
    assert not waits or not list(stopping(program, known=False))
