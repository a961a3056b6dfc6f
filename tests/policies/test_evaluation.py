"""The policy evaluator: unknown values, exceptions, enforcement levels and parameters."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from policies.evaluation import PolicyEvaluator
from policies.exemptions import PolicyConfigError
from policies.policy import EnforcementLevel, Policy, Resource, Violation
from policies.unknowns import UNKNOWN, PropertyBlock


def evaluate(resource: Resource) -> Iterator[Violation]:
    yield Violation("first", "bad", "good")
    if resource.props.get("later"):
        raise ZeroDivisionError("broken policy")


POLICY = Policy(
    name="a-policy", title="A title", reason="A reason", remedy="A remedy.", types=("x:*",), evaluate=evaluate
)


def messages(evaluator: PolicyEvaluator, **props: object) -> list[tuple[EnforcementLevel, str]]:
    return [
        (f.level, f.message) for f in evaluator.evaluate(Resource("x:y:Z", "z", props=PropertyBlock(props)))
    ]


def test_violations_before_an_unknown_value_are_reported() -> None:
    first, second = messages(PolicyEvaluator([POLICY]), later=UNKNOWN)
    assert first == (EnforcementLevel.MANDATORY, "first: got bad; allowed: good. A remedy.")
    assert second[0] is EnforcementLevel.MANDATORY
    assert second[1].startswith("later: got a value not known at preview")


def test_a_policy_that_raises_is_a_violation() -> None:
    level, text = messages(PolicyEvaluator([POLICY]), later=True)[1]
    assert level is EnforcementLevel.MANDATORY
    assert "ZeroDivisionError: broken policy" in text


def test_only_types_that_a_policy_names_are_evaluated() -> None:
    assert list(PolicyEvaluator([POLICY]).evaluate(Resource("y:x:Z", "z"))) == []


def test_a_disabled_policy_reports_nothing_and_an_advisory_one_advises() -> None:
    assert messages(PolicyEvaluator([POLICY], {"a-policy": EnforcementLevel.DISABLED})) == []
    assert (
        messages(PolicyEvaluator([POLICY], {"a-policy": EnforcementLevel.ADVISORY}))[0][0]
        is EnforcementLevel.ADVISORY
    )


def test_levels_of_unknown_policies_are_refused() -> None:
    with pytest.raises(PolicyConfigError, match="a-polixy"):
        PolicyEvaluator([POLICY], {"a-polixy": EnforcementLevel.DISABLED})


def test_parameters_have_defaults() -> None:
    seen: list[object] = []

    def within_limit(resource: Resource) -> Iterator[Violation]:
        seen.append(resource.parameters["limit"])
        yield from ()

    policy = replace(POLICY, evaluate=within_limit, parameters={"limit": {"type": "integer", "default": 3}})
    messages(PolicyEvaluator([policy]))
    messages(PolicyEvaluator([policy], parameters={"a-policy": {"limit": 5}}))
    assert seen == [3, 5]
