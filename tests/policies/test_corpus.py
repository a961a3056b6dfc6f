"""Every pair of the corpus is evaluated correctly, by the policies alone and under the real engine."""

import json
from collections import defaultdict
from collections.abc import Mapping
from fnmatch import fnmatchcase
from functools import partial
from typing import Any

import pulumi
import pytest

from policies.pack import POLICIES
from policies.policy import EnforcementLevel, Policy
from policies.rules import NOT_KNOWN
from policies.unknowns import PropertyBlock
from tests.policies.corpus import (
    CONFIG,
    FOLDER,
    PARAMETERS,
    THIS,
    THIS_AND_ANOTHER,
    UNKNOWN_VALUE,
    Case,
    StackContext,
    Twin,
    deferring,
    evaluated,
    load,
    read,
    with_unknown,
)
from tests.policies.engine import PolicyEngine, PolicyRun, declare

CASES = load()
NAMES = [case.violating.name.removesuffix("-violates") for case in CASES]


@pytest.mark.parametrize("case", CASES, ids=NAMES)
def test_the_broken_twin_violates_one_policy_and_the_other_none(case: Case) -> None:
    assert [finding.message for finding in evaluated(case.clean)] == []
    findings = [finding for finding in evaluated(case.violating) if finding.policy.name not in case.also]
    assert [(f.policy.name, f.message) for f in findings] == [
        (case.policy, f"{case.message}. {findings[0].policy.remedy}")
    ]


LATER = [case for case in CASES if f"got {NOT_KNOWN}" in case.message]


@pytest.mark.parametrize("case", LATER, ids=[case.violating.name for case in LATER])
def test_an_unknown_value_is_deferred_to_the_update_unless_it_is_refused(case: Case) -> None:
    twin = deferring(case.violating, {})
    found = [finding for finding in evaluated(twin) if finding.policy.name == case.policy]
    assert [(finding.level, finding.violation.is_deferred) for finding in found] == [("advisory", True)]
    assert f"{found[0].violation.property}: {NOT_KNOWN}: judged " in found[0].message


def test_twins_differ_in_one_property() -> None:
    for file in FOLDER.glob("*.yaml"):
        for entry in read(file) if file.stem != "compliant" else []:
            changes = sum(len(entry.get(key, {})) for key in ("set", "set_config", "set_beside"))
            changes += "set_protect" in entry
            assert changes == 1, entry


NO_PROPERTY_DECIDES = {
    ("residency-region", "aws-native:*"),
    ("security-shared-keys", "aws:iam/accessKey:AccessKey"),
}
"""Types that are refused as such, or by their provider: `test_region` and `test_programs` evaluate them."""


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_every_type_that_a_policy_names_has_a_pair(policy: Policy) -> None:
    types = {case.violating.type for case in CASES if case.policy == policy.name}
    for pattern in policy.types:
        covered = any(fnmatchcase(each, pattern) for each in types)
        assert covered or (policy.name, pattern) in NO_PROPERTY_DECIDES, pattern


@pytest.mark.parametrize("policy", POLICIES, ids=lambda policy: policy.name)
def test_disabling_any_policy_makes_a_case_fail(policy: Policy) -> None:
    rest = tuple(other for other in POLICIES if other is not policy)
    own = [case for case in CASES if case.policy == policy.name]
    assert own
    assert all(evaluated(case.violating) for case in own)
    assert not any(f.policy is policy for case in own for f in evaluated(case.violating, rest))


def by_context() -> dict[StackContext, dict[str, Twin]]:
    """Return context → the twins by name that are evaluated in it."""
    contexts: dict[StackContext, dict[str, Twin]] = defaultdict(dict)
    for case in CASES:
        for twin in (case.clean, case.violating):
            contexts[twin.context][twin.name] = twin
    return contexts


CONTEXTS = by_context()
ALONE = [context for context in CONTEXTS if "test:alone" in context.config]
"""Contexts with a separate run of the engine for one resource."""
AT_EVERY_CHANGE = [*sorted(CONTEXTS, key=lambda context: -len(CONTEXTS[context]))[:3], ALONE[0]]
OTHERS = [context for context in CONTEXTS if context not in AT_EVERY_CHANGE]


@pytest.mark.engine
@pytest.mark.parametrize(
    "contexts",
    [
        pytest.param(AT_EVERY_CHANGE, id="the three largest runs, and one pair that is alone"),
        pytest.param(OTHERS, id="all others", marks=pytest.mark.soak),
    ],
)
def test_the_engine_finds_all_violations_and_raises_no_false_alarm(
    engine: PolicyEngine, contexts: list[StackContext]
) -> None:
    expected = {case.violating.name: case for case in CASES}
    for context in contexts:
        twins = CONTEXTS[context]
        run = ask_the_engine(engine, context, list(twins.values()))
        assert run.created == ()
        found = printed(run, twins)
        assert found.keys() == expected.keys() & twins.keys(), run.output
        for name, verdicts in found.items():
            case = expected[name]
            assert verdicts.keys() == {case.policy, *case.also}, name
            assert verdicts[case.policy].startswith(f"{case.message}. "), name


def waits(case: Case) -> bool:
    """Whether the policy defers the case when its one change is an output of another resource."""
    shared = StackContext.of(CONFIG, PARAMETERS)
    if len(case.change) != 1 or case.violating.context != shared or case.violating.beside:
        return False
    [(path, value)] = case.change.items()
    if value in (None, UNKNOWN_VALUE) or PropertyBlock(case.clean.props).get(path) is None:
        return False
    found = evaluated(deferring(case.violating, {path: UNKNOWN_VALUE}))
    return any(finding.violation.is_deferred and finding.policy.name == case.policy for finding in found)


WAITING = {case.policy: case for case in reversed(CASES) if waits(case)}
"""A case of each policy whose change may be an output of another resource."""


@pytest.mark.engine
@pytest.mark.parametrize(
    "policies",
    [
        pytest.param(list(WAITING)[:12], id="twelve policies"),
        pytest.param(list(WAITING)[12:], id="all others", marks=pytest.mark.soak),
    ],
)
def test_a_deferred_violation_stops_the_update_before_the_resource_exists(
    engine: PolicyEngine, policies: list[str]
) -> None:
    cases = [WAITING[policy] for policy in policies]
    paths = {
        twin.name: path for case in cases for twin in (case.clean, case.violating) for path in case.change
    }

    def run(twins: list[Twin], operation: str = "preview") -> PolicyRun:
        def program() -> None:
            source = declare("aws:sqs/queue:Queue", "source", region="eu-west-1").id
            for twin in twins:
                path = paths[twin.name]
                make(deferring(twin, {path: source.apply(partial(_given, value_at(twin, path)))}), source)

        config = {**CONFIG, "trainyard:unknown": "defer"}
        return engine.run(program, config=config, pack_config=dict(PARAMETERS), operation=operation)

    previewed = run([each.violating for each in cases])
    assert previewed.succeeded, previewed.output
    assert {(each.policy, each.violating.name) for each in cases} <= previewed.refused("advisory")
    sound = run([each.clean for each in cases], "up")
    assert sound.succeeded, sound.output
    assert set(sound.created) == {"source", *(each.clean.name for each in cases)}
    for case in cases:
        updated = run([case.violating], "up")
        assert not updated.succeeded
        assert (case.policy, case.violating.name) in updated.refused(), updated.output
        assert updated.created == ("source",)


def _given(value: Any, _source: str) -> Any:
    return value


def value_at(twin: Twin, path: str) -> Any:
    """Return a property of a twin as plain data."""
    found = PropertyBlock(twin.props).get(path)
    items = found if isinstance(found, list) else [found]
    plain = [item.data if isinstance(item, PropertyBlock) else item for item in items]
    return plain if isinstance(found, list) else plain[0]


def printed(run: PolicyRun, twins: dict[str, Twin]) -> dict[str, dict[str, str]]:
    """Return twin → policy → the printed violation, without default providers."""
    found: dict[str, dict[str, str]] = defaultdict(dict)
    for verdict in run.verdicts:
        if "covers no violation" not in verdict.message and not verdict.resource.startswith("default"):
            name = verdict.resource if verdict.resource in twins else stack_twin(twins)
            found[name][verdict.policy] = verdict.message.strip().split("\n")[1].strip()
    return found


def stack_twin(twins: dict[str, Twin]) -> str:
    """Return the twin that is the stack resource, which the engine names after project and stack."""
    return next(name for name, twin in twins.items() if twin.type == "pulumi:pulumi:Stack")


PREVENTED = {case.policy: case for case in reversed(CASES)}
"""The first case of each policy."""


@pytest.mark.soak
@pytest.mark.parametrize(
    "policy",
    [each for each in POLICIES if each.level is EnforcementLevel.MANDATORY and not each.together_with],
    ids=lambda policy: policy.name,
)
def test_a_refused_resource_is_not_created_without_a_preview(engine: PolicyEngine, policy: Policy) -> None:
    twin = PREVENTED[policy.name].violating
    run = ask_the_engine(engine, twin.context, [twin], operation="up")
    assert not run.succeeded
    assert policy.name in {name for name, _ in run.refused()}
    assert set(run.created) <= {"unknown"}


def ask_the_engine(
    engine: PolicyEngine, context: StackContext, twins: list[Twin], operation: str = "preview"
) -> PolicyRun:
    """Preview the twins in their context, or create them without a preview."""

    def program() -> None:
        unknown = declare("aws:sqs/queue:Queue", "unknown", region="eu-west-1").id
        for twin in twins:
            make(twin, unknown)

    return engine.run(
        program,
        operation=operation,
        config=json.loads(context.config),
        pack_config=json.loads(context.parameters),
    )


def make(twin: Twin, unknown: pulumi.Output[str]) -> None:
    """Declare a twin; the stack resource exists without a declaration."""
    props = with_unknown(twin.props, unknown)
    options = pulumi.ResourceOptions(protect=twin.protect)
    if twin.type.startswith("pulumi:providers:"):
        pulumi.ProviderResource(twin.type.rpartition(":")[2], twin.name, props, options)
    elif twin.component:
        pulumi.ComponentResource(twin.type, twin.name, props, options)
    elif twin.type != "pulumi:pulumi:Stack":
        made = pulumi.CustomResource(twin.type, twin.name, props, options)
        for other in twin.beside:
            pulumi.CustomResource(other.type, other.name, _placed(other.props, made.id, unknown))


def _placed(
    props: Mapping[str, Any], this: pulumi.Output[str], unknown: pulumi.Output[str]
) -> dict[str, Any]:
    """Return a companion's properties, with references to its resource's ID."""
    points = {THIS: this, THIS_AND_ANOTHER: pulumi.Output.all(this, unknown).apply(lambda ids: ids[0])}

    def placed(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {name: placed(item) for name, item in value.items()}
        return points[value] if isinstance(value, str) and value in points else with_unknown(value, unknown)

    return {name: placed(value) for name, value in props.items()}


def test_names_of_policies_differ() -> None:
    assert len({policy.name for policy in POLICIES}) == len(POLICIES)
