from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from policies.exemptions import PolicyConfigError
from policies.judgement import Court
from policies.policy import EnforcementLevel, Policy, Resource, Violation
from policies.unknowns import UNKNOWN, PropertyBlock


def judge(resource: Resource) -> Iterator[Violation]:
    yield Violation("first", "bad", "good")
    if resource.props.get("later"):
        raise ZeroDivisionError("broken judge")


POLICY = Policy(
    name="a-policy", title="A title", reason="A reason", remedy="A remedy.", types=("x:*",), judge=judge
)


def messages(court: Court, **props: object) -> list[tuple[EnforcementLevel, str]]:
    return [(f.level, f.message) for f in court.judge(Resource("x:y:Z", "z", props=PropertyBlock(props)))]


def test_what_was_found_before_an_unknown_value_is_kept() -> None:
    first, second = messages(Court([POLICY]), later=UNKNOWN)
    assert first == (EnforcementLevel.MANDATORY, "first: got bad; allowed: good. A remedy.")
    assert second[0] is EnforcementLevel.MANDATORY
    assert second[1].startswith("later: got a value not known at preview")


def test_a_judge_that_breaks_is_a_violation() -> None:
    level, text = messages(Court([POLICY]), later=True)[1]
    assert level is EnforcementLevel.MANDATORY
    assert "ZeroDivisionError: broken judge" in text


def test_only_types_that_a_policy_names_are_judged() -> None:
    assert list(Court([POLICY]).judge(Resource("y:x:Z", "z"))) == []


def test_a_disabled_policy_says_nothing_and_an_advisory_one_advises() -> None:
    assert messages(Court([POLICY], {"a-policy": EnforcementLevel.DISABLED})) == []
    assert (
        messages(Court([POLICY], {"a-policy": EnforcementLevel.ADVISORY}))[0][0] is EnforcementLevel.ADVISORY
    )


def test_levels_of_policies_that_do_not_exist_are_refused() -> None:
    with pytest.raises(PolicyConfigError, match="a-polixy"):
        Court([POLICY], {"a-polixy": EnforcementLevel.DISABLED})


def test_defaults_of_parameters_hold_where_nothing_is_configured() -> None:
    seen: list[object] = []

    def look(resource: Resource) -> Iterator[Violation]:
        seen.append(resource.parameters["limit"])
        yield from ()

    policy = replace(POLICY, judge=look, parameters={"limit": {"type": "integer", "default": 3}})
    messages(Court([policy]))
    messages(Court([policy], parameters={"a-policy": {"limit": 5}}))
    assert seen == [3, 5]
