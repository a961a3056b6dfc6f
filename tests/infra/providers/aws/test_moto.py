"""Every AWS resource of the stacks lives its whole life through boto3: made, read, changed, removed.

botocore's models judge each request, moto makes it. What moto lacks is judged by the models alone; the golden
list says what that is, and may not grow.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.spec import Stack, load
from infra.spec.aws import AwsSpec
from rehearsal.aws.account import Account
from rehearsal.cloud import Resource
from rehearsal.wire import UNKNOWN
from tests.infra.golden import GOLDEN, assert_matches
from tests.infra.plan import Plan, Registration, cluster_plan, stack_file
from tests.infra.providers.aws.answers import identity
from tests.infra.providers.aws.test_plan_of_aws import with_provider


@pytest.fixture(scope="module")
def plans(aws: Stack, rendered: Path) -> list[Plan]:
    """Both stacks, and what they leave out: the queue of notices, the emergency's role."""
    assert isinstance(aws.provider, AwsSpec)
    access = aws.provider.access.model_copy(update={"break_glass": aws.provider.access.admins})
    stacks = [with_provider(aws, interruption_queue=True, access=access), load(stack_file("aws-dev"))]
    return [cluster_plan(stack, rendered) for stack in stacks]


@dataclass
class Life:
    """The resources of a plan in an account; `known` maps names of the plan to what they have become."""

    account: Account
    known: dict[str, Any] = field(default_factory=dict)
    made: list[Resource] = field(default_factory=list)

    def create(self, registered: Registration) -> None:
        """Create a resource."""
        name = identity(registered.type, registered.name)
        inputs = self._filled(registered.inputs)
        if (field := self.account.autoname(registered.type)) and field not in inputs:
            inputs[field] = registered.name
        resource = Resource(registered.type, registered.name, inputs)
        assert not list(self.account.check(resource)), name
        made = self.account.create(resource)
        self.made.append(replace(resource, outputs={**inputs, **made.outputs}, id=made.id))
        self.known |= {name: made.id, f"arn:{name}": made.outputs.get("arn")}
        if registered.type == "aws:eks/cluster:Cluster":
            group = made.outputs["vpcConfig"]["clusterSecurityGroupId"]
            self.known[f"ClusterGroup/{registered.name}"] = group
        if registered.type == "aws:eks/nodeGroup:NodeGroup":
            (behind,) = made.outputs["resources"][0]["autoscalingGroups"]
            self.known[f"ScalingGroup/{registered.name}"] = behind["name"]

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(each) for each in value]
        return self.known.get(value, value) if isinstance(value, str) else value


def in_order(found: Plan) -> Iterator[Registration]:
    """The AWS resources, each after those that it depends on."""
    waiting = {each.urn: each for each in found.resources if each.type.startswith("aws:")}
    while waiting:
        ready = [each for each in waiting.values() if not waiting.keys() & set(each.dependencies)]
        assert ready, "a circle of dependencies"
        for each in ready:
            yield waiting.pop(each.urn)


def test_every_resource_lives_through_moto_or_botocores_models(plans: list[Plan]) -> None:
    lacks: set[str] = set()
    for found in plans:
        with Account("us-east-2") as account:
            life = Life(account)
            for registered in in_order(found):
                life.create(registered)
            for resource in life.made:
                assert account.exists(resource), resource
            for resource in reversed(life.made):
                account.delete(resource)
            left = {each.token.rpartition(":")[2] for each in life.made if account.exists(each)}
            # A VPC's default group goes with the VPC, and versioning is suspended, never removed.
            assert left - account_lacks(account) <= {"DefaultSecurityGroup", "BucketVersioning"}
            lacks |= account.lacks
    assert_matches(yaml.safe_dump({"moto lacks": sorted(lacks)}), GOLDEN / "moto.yaml")


def account_lacks(account: Account) -> set[str]:
    """Types that moto lacks, by their last word."""
    return {token.rpartition(":")[2] for token in account.lacks}


def refusals(token: str, **inputs: object) -> str:
    """What an account says to inputs, in one text."""
    found = Account("us-east-2").check(Resource(token, "name", inputs))
    return "; ".join(f"{path}: {reason}" for path, reason in found)


@pytest.mark.parametrize(
    ("token", "inputs", "expected"),
    [
        (
            "aws:ec2/vpc:Vpc",
            {"cidrBlok": "10.0.0.0/16"},
            "cidrBlok: is no property of this type; did you mean 'cidrBlock'?",
        ),
        ("aws:ec2/subnet:Subnet", {"cidrBlock": "10.0.0.0/24"}, "vpcId: is missing"),
        (
            "aws:ec2/vpc:Vpc",
            {"cidrBlock": "10.0.0.0/16", "enableDnsSupport": "yes"},
            "enableDnsSupport: got 'yes'; true or false is allowed",
        ),
        (
            "aws:ec2/placementGroup:PlacementGroup",
            {"name": "one", "strategy": "clutser"},
            "strategy: got 'clutser'; allowed are cluster, spread, partition",
        ),
        (
            "aws:kms/alias:Alias",
            {"name": "training", "targetKeyId": UNKNOWN, "region": "us-east-2"},
            "",
        ),
        (
            "aws:eks/accessEntry:AccessEntry",
            {"clusterName": UNKNOWN, "principalArn": "arn:aws:iam::1:role/a", "type": 7},
            "type: got 7; a text is allowed",
        ),
        (
            "aws:eks/nodeGroup:NodeGroup",
            {
                "clusterName": "a",
                "nodeRoleArn": UNKNOWN,
                "subnetIds": [UNKNOWN],
                "capacityType": "SPOTT",
                "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 1},
            },
            "capacityType: got 'SPOTT'; allowed are ON_DEMAND, SPOT, CAPACITY_BLOCK",
        ),
        (
            "aws:eks/nodeGroup:NodeGroup",
            {
                "clusterName": "a",
                "nodeRoleArn": UNKNOWN,
                "subnetIds": [UNKNOWN],
                "scalingConfig": {"minSize": 0, "desiredSize": 1, "maxSize": 0},
            },
            "maxSize, value: 0, valid min value: 1",
        ),
    ],
)
def test_what_aws_would_refuse_is_refused_before_it_is_asked(
    token: str, inputs: dict[str, object], expected: str
) -> None:
    assert expected in refusals(token, **inputs)
    assert expected or not refusals(token, **inputs)
