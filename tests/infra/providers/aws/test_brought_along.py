"""What a stack brings along is used, and neither made nor removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spec import Stack
from infra.spec.aws import AwsNetworkSpec, ExistingVpcSpec
from tests.infra.plan import Plan, cluster_plan
from tests.infra.providers.aws.test_plan_of_aws import with_provider

KEY = "arn:aws:kms:us-east-2:123456789012:key/0a1b2c3d-0000-0000-0000-000000000000"
SUBNETS = {f"us-east-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "abc"}
VPC = "vpc-0123456789abcdef0"


@pytest.fixture(scope="module")
def found(aws: Stack, rendered: Path) -> Plan:
    network = AwsNetworkSpec(existing=ExistingVpcSpec(id=VPC, subnets=SUBNETS))
    stack = with_provider(aws, network=network, kms_key=KEY, existing_bucket=True, interruption_queue=True)
    return cluster_plan(stack, rendered)


def test_an_existing_vpc_is_used(found: Plan) -> None:
    made = {each.type for each in found.resources}
    assert not made & {"aws:ec2/vpc:Vpc", "aws:ec2/subnet:Subnet", "aws:ec2/vpcEndpoint:VpcEndpoint"}
    assert found.named("Cluster")["training"]["vpcConfig"]["subnetIds"] == list(SUBNETS.values())
    assert found.named("SecurityGroup")["training-efa"]["vpcId"] == VPC
    assert found.named("NodeGroup")["training-on-demand"]["subnetIds"] == [SUBNETS["us-east-2b"]]


def test_an_existing_key_encrypts_all_data_and_secrets_have_one_of_their_own(found: Plan) -> None:
    assert found.named("Key").keys() == {"training-cluster-key"}
    disks = [each["blockDeviceMappings"][0]["ebs"] for each in found.named("LaunchTemplate").values()]
    assert {disk["kmsKeyId"] for disk in disks} == {KEY}
    assert found.named("LustreFileSystem")["training-lustre"]["kmsKeyId"] == KEY
    assert found.named("RolePolicy")["training-team-research"]["policy"].count(KEY) == 1


def test_an_existing_bucket_is_linked_and_left_as_it_is(found: Plan) -> None:
    assert not any("aws:s3" in each.type for each in found.resources)
    link = found.named("DataRepositoryAssociation")["training-lustre"]
    assert link["dataRepositoryPath"] == "s3://example-training-checkpoints/filesystem"


def test_a_queue_takes_every_notice_that_ec2_gives(found: Plan) -> None:
    patterns = " ".join(str(each["eventPattern"]) for each in found.named("EventRule").values())
    for notice in ("Spot Instance Interruption", "Rebalance Recommendation", "State-change", "Health Event"):
        assert notice in patterns
    assert len(found.named("EventTarget")) == 4


def test_managed_groups_need_no_queue(aws_plan: Plan) -> None:
    assert not aws_plan.named("Queue")
