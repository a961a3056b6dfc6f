"""Evaluates the policy pack on the plan of a stack, without the engine."""

import json
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from infra.common.artifacts import ROOT
from infra.stackfile import Stack
from policies import wire
from policies.config import EvaluatedStack
from policies.evaluation import PolicyEvaluator
from policies.pack import POLICIES
from policies.policy import EnforcementLevel, Provider, Resource
from policies.related_resources import RelatedResource, RelatedResources
from policies.unknowns import PropertyBlock
from rehearsal import sdk
from tests.infra.plan import Plan, Registration, plan, stack_file

TODAY = date(2026, 11, 21)


def evaluated(name: str, file: Path | None = None) -> EvaluatedStack:
    """Return a stack as the pack reads it."""
    config: dict[str, Any] = yaml.safe_load((file or stack_file(name)).read_text())["config"]
    config |= {"trainyard:unknown": project_config()["trainyard:unknown"]["value"]}
    texts = {key: json.dumps(value) for key, value in config.items()}
    return EvaluatedStack("trainyard", name, config=texts, today=TODAY)


def project_config() -> Mapping[str, Any]:
    """Return the configuration that our project gives to each stack."""
    found: Mapping[str, Any] = yaml.safe_load((ROOT / "Pulumi.yaml").read_text())["config"]
    return found


def findings(
    name: str,
    found: Plan,
    *,
    file: Path | None = None,
    parameters: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> list[str]:
    """Return a line for each violation that no exemption covers.

    `file`: a stack file that is not shipped. `parameters`: an organisation's, by policy.
    """
    stack, evaluator = evaluated(name, file), PolicyEvaluator(POLICIES, parameters=parameters)
    providers = {each.urn: each for each in found.resources if each.type.startswith("pulumi:providers:")}
    members = [
        RelatedResource(_resource(each, providers, stack), depends_on=each.depends_on)
        for each in found.resources
    ]
    for each in found.resources:  # in the plan's order, not the engine's, where each follows what it needs
        stack.declared.add(each.type, each.name, PropertyBlock(wire.decode(each.wire)).data)
    alone = [finding for member in members for finding in evaluator.evaluate(member.resource)]
    return sorted(
        f"{finding.policy.name}: {finding.resource.type}::{finding.resource.name}: {finding.violation}"
        for finding in [*alone, *evaluator.evaluate_stack(RelatedResources(members))]
        if finding.level is not EnforcementLevel.ADVISORY
    )


def assert_sound(name: str, stack: Stack, found: Plan, rendered: Path, cluster: str) -> None:
    """Assert what holds for each cloud's plan, whose cluster has this type.

    The first preview lists every resource, and the policies let both pass. The cloud's resources have one
    provider and inputs that fit the SDK's types. Objects are deleted with the cluster.
    """
    preview = plan(stack, rendered, preview=True)
    assert [each.urn for each in preview.resources] == [each.urn for each in found.resources]
    assert findings(name, found) == findings(name, preview) == []
    own = [each for each in found.resources if each.type.startswith(f"{cluster.partition(':')[0]}:")]
    (provider,) = {each.provider for each in own}
    assert f"pulumi:providers:{cluster.partition(':')[0]}::{stack.name}" in provider
    problems = {each.urn: list(sdk.problems(each.type, each.inputs)) for each in own}
    assert {urn: each for urn, each in problems.items() if each} == {}
    objects = [each for each in found.resources if each.type.startswith("kubernetes:")]
    assert {each.deleted_with.rpartition("$")[2] for each in objects} == {f"{cluster}::{stack.name}"}


def _resource(each: Registration, providers: dict[str, Registration], stack: EvaluatedStack) -> Resource:
    urn = each.provider.rpartition("::")[0].partition("::")[2].partition("::")[2]
    provider = providers.get(urn)
    made_with = (
        Provider(provider.type, provider.name, PropertyBlock(wire.decode(provider.wire)))
        if provider
        else Provider()
    )
    props, secrets = PropertyBlock(wire.decode(each.wire)), wire.secret_paths(each.wire)
    return Resource(
        each.type, each.name, each.urn, props, made_with, stack=stack, protect=each.protect, secrets=secrets
    )
