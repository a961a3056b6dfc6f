"""A rehearsal's API server answers only if the stack's settings admit the network that the engine runs in."""

from collections.abc import Mapping
from typing import Any

import pytest

from infra.errors import InputError, Problem, TrainyardError
from rehearsal.cloud import Cloud, RefusedError, RequestedResource
from rehearsal.fake import fake_of
from rehearsal.reach import ELSEWHERE, INSIDE, Reach, origin_of, reached
from tests.tables import table

HERE = "203.0.113.7"
RULE = "aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule"
Inputs = Mapping[str, Any]
PRIVATE, NAMED, OPEN = table(__file__).values()


class ReachableClouds:
    """The fakes of a stack whose engine runs at `origin`."""

    def __init__(self, kind: str, origin: str) -> None:
        control_plane = fake_of(kind).control_plane
        assert control_plane
        self.type = control_plane.type
        self.reach = Reach(control_plane, origin)
        self.clouds = reached({name: Cloud() for name in ("cloud", "kubernetes", "trainyard")}, self.reach)

    def make(self, token: str, inputs: Inputs) -> RequestedResource:
        resource = RequestedResource(token, "it", inputs)
        self.clouds["cloud"].create(resource)
        return resource

    def answers(self) -> bool:
        """Whether a Namespace can be created."""
        try:
            self.clouds["kubernetes"].create(RequestedResource("kubernetes:core/v1:Namespace", "team", {}))
        except RefusedError as error:
            assert "cluster is unreachable" in str(error) and "i/o timeout" in str(error)
            return False
        return True


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_private_api_server_does_not_answer_outside_of_its_network(kind: str) -> None:
    stage = ReachableClouds(kind, HERE)
    stage.make(stage.type, PRIVATE[kind])
    assert not stage.answers()


@pytest.mark.parametrize("kind", NAMED)
def test_a_limited_api_server_answers_the_named_networks(kind: str) -> None:
    for origin, answered in ((HERE, True), (ELSEWHERE, False)):
        stage = ReachableClouds(kind, origin)
        stage.make(stage.type, NAMED[kind])
        assert stage.answers() is answered, origin


@pytest.mark.parametrize("kind", OPEN)
def test_a_public_api_server_answers_from_anywhere(kind: str) -> None:
    stage = ReachableClouds(kind, ELSEWHERE)
    stage.make(stage.type, OPEN[kind])
    assert stage.answers()


@pytest.mark.parametrize("kind", PRIVATE)
def test_a_runner_in_the_network_reaches_it_on_aws_by_a_security_group_rule(kind: str) -> None:
    stage = ReachableClouds(kind, INSIDE)
    stage.make(stage.type, PRIVATE[kind])
    assert stage.answers() is (kind != "aws")
    stage.make(RULE, {"referencedSecurityGroupId": "sg-1", "fromPort": 443, "toPort": 443})
    stage.make(RULE, {"cidrIpv4": "10.8.0.0/24", "fromPort": 988, "toPort": 988})
    assert stage.answers() is (kind != "aws")
    stage.make(RULE, {"cidrIpv4": "10.8.0.0/24", "fromPort": 443, "toPort": 443})
    assert stage.answers()


@pytest.mark.parametrize("operation", ["create", "exists", "update", "delete"])
@pytest.mark.parametrize(
    ("package", "token"),
    [
        ("kubernetes", "kubernetes:core/v1:Namespace"),
        ("trainyard", "trainyard:kubernetes:CustomResourceDefinitions"),
    ],
)
def test_an_endpoint_that_is_closed_later_does_not_answer(package: str, token: str, operation: str) -> None:
    stage = ReachableClouds("aws", HERE)
    cluster = stage.make(stage.type, NAMED["aws"])
    assert stage.answers()
    stage.clouds["cloud"].update(cluster, PRIVATE["aws"])
    arguments = [RequestedResource(token, "it", {}), *([{}] if operation == "update" else [])]
    with pytest.raises(RefusedError):
        getattr(stage.clouds[package], operation)(*arguments)
    stage.make("aws:s3/bucket:Bucket", {})  # the cluster's network does not affect the cloud's API


def test_an_existing_cluster_always_answers() -> None:
    assert ReachableClouds("aws", ELSEWHERE).answers()


def test_the_reason_and_the_next_step_precede_the_engines_output() -> None:
    stage = ReachableClouds("azure", HERE)
    with pytest.raises(TrainyardError) as raised, stage.reach.explained():
        stage.make(stage.type, PRIVATE["azure"])
        problems = [Problem("Namespace team", str(error), "", "") for error in refusals(stage, 2)]
        raise TrainyardError([*problems, Problem("another", "thing", "", "")])
    first, other = raised.value.problems
    assert (first.path, other.path) == ("target.access.public_cidrs", "another")
    assert HERE in first.got
    assert "learn.microsoft.com" in first.allowed
    assert "--from inside" in first.fix and "docs/runners.md" in first.fix


def refusals(stage: ReachableClouds, number: int) -> list[RefusedError]:
    found = []
    for _ in range(number):
        with pytest.raises(RefusedError) as error:
            stage.clouds["kubernetes"].create(RequestedResource("kubernetes:core/v1:Namespace", "team", {}))
        found.append(error.value)
    return found


def test_other_errors_are_not_changed() -> None:
    stage = ReachableClouds("azure", HERE)
    with pytest.raises(TrainyardError) as raised, stage.reach.explained():
        raise TrainyardError([Problem("another", "thing", "", "")])
    assert [each.path for each in raised.value.problems] == ["another"]


def test_an_engine_outside_of_the_required_network_is_reported() -> None:
    named = {"target": {"access": {"public_cidrs": ["192.0.2.64/26", "203.0.113.7/32"]}}}
    assert origin_of("", named) == "192.0.2.64"
    assert origin_of("", {"target": {}}) == ELSEWHERE
    assert origin_of("inside", named) == INSIDE
    assert origin_of(HERE, named) == HERE
    with pytest.raises(InputError, match="--from"):
        origin_of("the office", named)
