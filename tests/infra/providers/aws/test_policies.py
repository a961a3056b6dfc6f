"""The policy pack judges the stacks that we ship, as their plan is and as their first preview shows it."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec import load
from policies import wire
from policies.config import Measurement
from policies.config import Stack as Judged
from policies.judgement import Court
from policies.pack import POLICIES
from policies.policy import Level, Provider, Resource
from policies.unknowns import Properties
from tests.infra.plan import Plan, Registration, plan, stack_file

TODAY = date(2026, 11, 21)


def judged(name: str) -> Judged:
    """The stack as the pack sees it; a checkpoint was measured the day before."""
    config: dict[str, Any] = yaml.safe_load(stack_file(name).read_text())["config"]
    texts = {key: json.dumps(value) for key, value in config.items()}
    return Judged("trainyard", name, config=texts, today=TODAY, measurement=Measurement(60, TODAY))


def findings(name: str, found: Plan) -> list[str]:
    """What is refused, one line each; what an exemption covers is not."""
    stack, court = judged(name), Court(POLICIES)
    providers = {each.urn: each for each in found.resources if each.type.startswith("pulumi:providers:")}
    refused = [
        f"{finding.policy.name}: {each.type}::{each.name}: {finding.violation}"
        for each in found.resources
        for finding in court.judge(_resource(each, providers, stack))
        if finding.level is not Level.ADVISORY
    ]
    return sorted(refused)


def _resource(each: Registration, providers: dict[str, Registration], stack: Judged) -> Resource:
    urn = each.provider.rpartition("::")[0].partition("::")[2].partition("::")[2]
    provider = providers.get(urn)
    made_with = (
        Provider(provider.type, provider.name, Properties(wire.decode(provider.wire)))
        if provider
        else Provider()
    )
    props = Properties(wire.decode(each.wire))
    return Resource(
        each.type, each.name, each.urn, props, provider=made_with, stack=stack, protect=each.protect
    )


@pytest.mark.parametrize("name", ["aws", "aws-dev"])
def test_the_policies_let_the_first_preview_pass(name: str, rendered: Path) -> None:
    assert findings(name, plan(load(stack_file(name)), rendered, preview=True)) == []


def test_the_policies_let_the_plans_pass(aws_plan: Plan, dev_plan: Plan) -> None:
    assert findings("aws", aws_plan) == findings("aws-dev", dev_plan) == []
