"""The lifecycle of every AWS resource of the stacks by boto3: created, read, updated, deleted.

botocore's models validate each request, and moto executes it. Types that moto lacks are only validated; a
golden list has them, and may not grow.
"""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack, load
from infra.targets.aws.stackfile.target import AwsSpec
from rehearsal.aws.account import MotoAccount
from rehearsal.cloud import RefusedError, RequestedResource
from rehearsal.leaks import SECRET
from rehearsal.wire import UNKNOWN
from tests.infra.golden import GOLDEN, assert_matches
from tests.infra.plan import Plan, Registration, cluster_plan, stack_file
from tests.infra.targets.aws.answers import identity
from tests.infra.targets.aws.plugin import (
    RunningPlugin,
    environment_of,
    home_of,
    installed,
    moto_server,
    put_fake_plugin,
    running,
)
from tests.infra.targets.aws.test_plan_of_aws import with_provider

RETAINED = {"DefaultSecurityGroup", "BucketVersioning"}
"""A VPC's default group is deleted with the VPC, and versioning is suspended, never removed."""
LACKING = set(yaml.safe_load((GOLDEN / "moto.yaml").read_text())["moto lacks"])


@pytest.fixture(scope="module")
def plans(aws: Stack, rendered: Path) -> list[Plan]:
    """Plans of both stacks, with optional parts: the queue of notices, the break-glass role."""
    assert isinstance(aws.target, AwsSpec)
    access = aws.target.access.model_copy(update={"break_glass": aws.target.access.admins})
    stacks = [with_provider(aws, interruption_queue=True, access=access), load(stack_file("aws-dev"))]
    return [cluster_plan(stack, rendered) for stack in stacks]


@dataclass
class Lifecycle:
    """Creates a plan's resources in an account; `known` maps IDs of the plan to the created ones."""

    account: MotoAccount
    plugin: RunningPlugin | None = None
    """A plugin that creates resources in place of the account, except for those that moto lacks."""
    known: dict[str, Any] = field(default_factory=dict)
    made: list[RequestedResource] = field(default_factory=list)

    def create(self, registered: Registration) -> None:
        """Create a resource."""
        name = identity(registered.type, registered.name)
        inputs = self._filled(registered.inputs)
        if (field := self.account.autoname(registered.type)) and field not in inputs:
            inputs[field] = registered.name
        resource = RequestedResource(registered.type, registered.name, inputs)
        assert not list(self.account.check(resource)), name
        made = self.maker(resource).create(resource)
        self.made.append(replace(resource, outputs={**inputs, **made.outputs}, id=made.id))
        self.known |= {name: made.id, f"arn:{name}": made.outputs.get("arn")}
        if registered.type == "aws:eks/cluster:Cluster":
            group = made.outputs["vpcConfig"]["clusterSecurityGroupId"]
            self.known[f"ClusterGroup/{registered.name}"] = group
        if registered.type == "aws:eks/nodeGroup:NodeGroup":
            (behind,) = made.outputs["resources"][0]["autoscalingGroups"]
            self.known[f"ScalingGroup/{registered.name}"] = behind["name"]

    def maker(self, resource: RequestedResource) -> MotoAccount | RunningPlugin:
        """Return what creates, finds and deletes this resource."""
        return self.account if self.plugin is None or resource.token in LACKING else self.plugin

    def _filled(self, value: Any) -> Any:
        if isinstance(value, dict):
            return {key: self._filled(each) for key, each in value.items()}
        if isinstance(value, list | tuple):
            return [self._filled(each) for each in value]
        return self.known.get(value, value) if isinstance(value, str) else value


def in_order(found: Plan) -> Iterator[Registration]:
    """Yield the AWS resources, each after those that it depends on."""
    waiting = {each.urn: each for each in found.resources if each.type.startswith("aws:")}
    while waiting:
        ready = [each for each in waiting.values() if not waiting.keys() & set(each.dependencies)]
        assert ready, "a circle of dependencies"
        for each in ready:
            yield waiting.pop(each.urn)


def test_every_resource_passes_its_lifecycle_in_moto_or_botocores_models(plans: list[Plan]) -> None:
    lacks: set[str] = set()
    for found in plans:
        with MotoAccount("us-east-2") as account:
            life = Lifecycle(account)
            for registered in in_order(found):
                life.create(registered)
            for resource in life.made:
                assert account.exists(resource), resource
            for resource in reversed(life.made):
                account.delete(resource)
            left = {each.token.rpartition(":")[2] for each in life.made if account.exists(each)}
            assert left - account_lacks(account) <= RETAINED
            lacks |= account.lacks
    assert_matches(yaml.safe_dump({"moto lacks": sorted(lacks)}), GOLDEN / "moto.yaml")


def account_lacks(account: MotoAccount) -> set[str]:
    """Return the types that moto lacks, by the last part of their tokens."""
    return {token.rpartition(":")[2] for token in account.lacks}


@pytest.fixture
def plugin(tmp_path: Path) -> Iterator[RunningPlugin]:
    """The pulumi-aws of this host's engine, or without it a fake."""
    program = installed(home_of(os.environ)) or put_fake_plugin(tmp_path)
    with moto_server() as address, running(program, environment_of(address, os.environ)) as plugin:
        yield plugin


def test_every_resource_of_moto_passes_its_lifecycle_there(plans: list[Plan], plugin: RunningPlugin) -> None:
    for found in plans:
        with MotoAccount("us-east-2") as account:
            life = Lifecycle(account, plugin)
            for registered in in_order(found):
                life.create(registered)
            by_plugin = [each for each in life.made if each.token not in LACKING]
            assert len(by_plugin) > 40
            for resource in by_plugin:
                assert plugin.exists(resource), resource
                assert account.exists(resource), "moto of this process, behind the server, has it too"
            for resource in reversed(life.made):
                life.maker(resource).delete(resource)
            left = {each.token.rpartition(":")[2] for each in by_plugin if account.exists(each)}
            assert left <= RETAINED
            assert not account.lacks - LACKING


def test_the_plugin_of_the_engine_is_found(tmp_path: Path) -> None:
    assert installed(tmp_path) is None
    for version in ("6.99.0", "7.9.0", "7.51.1"):
        program = tmp_path / "plugins" / f"resource-aws-v{version}" / "pulumi-resource-aws"
        program.parent.mkdir(parents=True)
        program.touch()
    assert installed(home_of({"PULUMI_HOME": str(tmp_path)})) == program
    assert home_of({"HOME": "/home/someone"}) == Path("/home/someone/.pulumi")


def test_a_plugin_reaches_only_motos_server() -> None:
    own = {"AWS_PROFILE": "mine", "AWS_ENDPOINT_URL_S3": "https://s3.example", "PATH": "/bin"}
    given = environment_of("http://127.0.0.1:5000", own)
    assert given["AWS_ENDPOINT_URL"] == "http://127.0.0.1:5000"
    assert given["PATH"] == "/bin"
    assert not {"AWS_PROFILE", "AWS_ENDPOINT_URL_S3"} & given.keys()
    assert given["AWS_SECRET_ACCESS_KEY"].startswith(SECRET)


def test_a_new_account_refuses_a_key_whose_policy_names_a_missing_role() -> None:
    role = "arn:aws:iam::123456789012:role/aws-service-role/autoscaling.amazonaws.com/AWSServiceRoleForX"
    statement = {"Effect": "Allow", "Action": "kms:*", "Resource": "*", "Principal": {"AWS": role}}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
    key = RequestedResource("aws:kms/key:Key", "key", {"policy": policy, "description": "data"})
    with MotoAccount("us-east-2") as account, pytest.raises(RefusedError, match="invalid principals"):
        account.create(key)


NODES, SCALING = "aws:eks/nodeGroup:NodeGroup", {"minSize": 0, "desiredSize": 1, "maxSize": 1}
GROUP = {"clusterName": "a", "nodeRoleArn": UNKNOWN, "subnetIds": [UNKNOWN], "scalingConfig": SCALING}


def refusals(token: str, **inputs: object) -> str:
    """Return an account's errors about inputs, in one text."""
    found = MotoAccount("us-east-2").check(RequestedResource(token, "name", inputs))
    return "; ".join(f"{path}: {reason}" for path, reason in found)


@pytest.mark.parametrize(
    ("token", "inputs", "expected"),
    [
        (
            "aws:ec2/vpc:Vpc",
            {"cidrBlok": "10.0.0.0/16"},
            "cidrBlok: is not a property of this type; did you mean 'cidrBlock'?",
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
        ("aws:kms/alias:Alias", {"name": "training", "targetKeyId": UNKNOWN, "region": "us-east-2"}, ""),
        (
            "aws:eks/accessEntry:AccessEntry",
            {"clusterName": UNKNOWN, "principalArn": "arn:aws:iam::1:role/a", "type": 7},
            "type: got 7; a string is allowed",
        ),
        (NODES, {**GROUP, "capacityType": "SPOTT"}, "got 'SPOTT'; allowed are ON_DEMAND, SPOT, CAPA"),
        (
            NODES,
            {**GROUP, "scalingConfig": {**SCALING, "maxSize": 0}},
            "maxSize, value: 0, valid min value: 1",
        ),
        (NODES, {**GROUP, "nodeGroupName": "x" * 64}, "got 64 characters; at most 63 are allowed"),
        ("aws:backup/vault:Vault", {"name": "x" * 51, "kmsKeyArn": UNKNOWN}, "BackupVaultName: got 'xxx"),
        (
            "aws:iam/role:Role",
            {"name": "x" * 65, "assumeRolePolicy": "{}"},
            "RoleName: got 65 characters; at most 64 are allowed",
        ),
    ],
)
def test_inputs_that_aws_would_refuse_are_refused_before_the_request(
    token: str, inputs: dict[str, object], expected: str
) -> None:
    assert expected in refusals(token, **inputs)
    assert expected or not refusals(token, **inputs)
