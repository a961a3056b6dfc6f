"""The policy evaluator: unknown values, exceptions, enforcement levels and parameters."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from infra.common.artifacts import pinned
from policies.config import EvaluatedStack, Organisation
from policies.evaluation import PolicyEvaluator
from policies.exemptions import Exemption
from policies.pack import POLICIES
from policies.policy import EnforcementLevel, Policy, Resource, Violation
from policies.rules import must_equal
from policies.security.kubernetes_hidden import REVIEWED
from policies.unknowns import UNKNOWN, PropertyBlock
from tests.tables import table


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


def test_violations_before_an_unknown_value_are_reported_and_the_rest_is_deferred() -> None:
    first, second = messages(PolicyEvaluator([POLICY]), later=UNKNOWN)
    assert first == (EnforcementLevel.MANDATORY, "first: got bad; allowed: good. A remedy.")
    assert second[0] is EnforcementLevel.ADVISORY
    assert second[1].startswith(
        "later: a value not known at preview: judged in the update, before it is created"
    )


def test_a_known_bad_value_beside_an_unknown_one_is_refused_at_preview() -> None:
    def both(resource: Resource) -> Iterator[Violation]:
        yield from must_equal(resource.props, "public", False)
        yield from must_equal(resource.props, "open", False)

    found = messages(PolicyEvaluator([replace(POLICY, evaluate=both)]), public=UNKNOWN, open=True)
    assert [(level.value, text.partition(":")[0]) for level, text in found] == [
        ("advisory", "public"),
        ("mandatory", "open"),
    ]


def test_known_items_of_a_list_are_judged_before_an_unknown_one() -> None:
    def named(resource: Resource) -> Iterator[Violation]:
        for member in resource.props.texts("members"):
            if member == "everybody":
                yield Violation("members", member, "somebody")

    found = messages(
        PolicyEvaluator([replace(POLICY, evaluate=named)]), members=[UNKNOWN, "somebody", "everybody"]
    )
    assert [level.value for level, _ in found] == ["mandatory", "advisory"]


@pytest.mark.parametrize("setting", ["a stack's", "an organisation's", "an update"])
def test_an_unknown_value_is_refused_where_nothing_may_wait(setting: str) -> None:
    config = {"trainyard:unknown": "refuse"} if setting == "a stack's" else {}
    stack = EvaluatedStack(config=config, dry_run=setting != "an update")
    parameters = {"a-policy": {"unknown": "refuse"}} if setting == "an organisation's" else {}
    evaluator = PolicyEvaluator([POLICY], parameters=parameters)
    resource = Resource("x:y:Z", "z", props=PropertyBlock({"later": UNKNOWN}), stack=stack)
    found = list(evaluator.evaluate(resource))
    assert [finding.level.value for finding in found] == ["mandatory", "mandatory"]


def test_an_exemption_of_a_deferred_value_does_not_cover_a_bad_one() -> None:
    exemption = Exemption.parse(
        {
            "policy": "a-policy", "resource": "x:y:Z::z", "owner": "security", "reason": "named later",
            "expires": "2199-01-01", "property": "region", "got": "a value not known at preview",
        },
        "exemptions[0]",
    )  # fmt: skip

    def abroad(resource: Resource) -> Iterator[Violation]:
        if resource.props.get("region") == "abroad":
            yield Violation("region", "abroad", "home")

    def found(region: object) -> list[str]:
        stack = EvaluatedStack(
            config={"trainyard:unknown": "refuse"}, organisation=Organisation(exemptions=(exemption,))
        )
        resource = Resource("x:y:Z", "z", props=PropertyBlock({"region": region}), stack=stack)
        evaluator = PolicyEvaluator([replace(POLICY, evaluate=abroad)])
        return [finding.level.value for finding in evaluator.evaluate(resource)]

    assert found(UNKNOWN) == ["advisory"]
    assert found("abroad") == ["mandatory"]


def test_a_refusal_offers_the_narrowest_exemption() -> None:
    (finding,) = PolicyEvaluator([POLICY]).evaluate(Resource("x:y:Z", "z"))
    [offer] = finding.offer
    assert '{policy: "a-policy", resource: "x:y:Z::z", property: "first", got: "bad", owner: …' in offer


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


def test_parameters_have_defaults() -> None:
    seen: list[object] = []

    def within_limit(resource: Resource) -> Iterator[Violation]:
        seen.append(resource.parameters["limit"])
        yield from ()

    policy = replace(POLICY, evaluate=within_limit, parameters={"limit": {"type": "integer", "default": 3}})
    messages(PolicyEvaluator([policy]))
    messages(PolicyEvaluator([policy], parameters={"a-policy": {"limit": 5}}))
    assert seen == [3, 5]


def of_pack(kind: str, name: str, **props: object) -> list[str]:
    """Return the levels at which the pack reports a resource."""
    resource = Resource(kind, name, props=PropertyBlock(props))
    concerned = [each for each in POLICIES if each.name.startswith("kubernetes-") and not each.together_with]
    return [finding.level.value for finding in PolicyEvaluator(concerned).evaluate(resource)]


@pytest.mark.parametrize(("image", "kind", "levels"), table(__file__)["images"])
def test_operators_of_a_release_are_advised_to_have_a_digest(
    image: str, kind: str, levels: list[str]
) -> None:
    spec = {"template": {"spec": {"containers": [{"name": "manager", "image": image}]}}}
    assert of_pack(f"kubernetes:{kind}", "controller", spec=spec) == levels


@pytest.mark.parametrize(("chart", "version", "levels"), table(__file__)["charts"])
def test_charts_of_a_release_are_reported_and_others_refused(
    chart: str, version: str | None, levels: list[str]
) -> None:
    version = version or pinned()["published_charts"]["gpu-operator"]["version"]
    assert of_pack("kubernetes:helm.sh/v3:Release", "it", chart=chart, version=version) == levels


def test_the_reviewed_charts_are_those_that_versions_yaml_pins() -> None:
    charts = {f"{name}:{chart['version']}" for name, chart in pinned()["published_charts"].items()}
    assert {*REVIEWED} == charts
