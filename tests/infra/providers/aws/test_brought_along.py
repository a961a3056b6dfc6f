"""What a stack brings along is used, and neither made nor removed."""

from __future__ import annotations

from pathlib import Path

import pytest

from infra.spec import Stack
from infra.spec.aws import (
    AwsNetworkSpec,
    EfsSpec,
    ExistingEfsSpec,
    ExistingLustreSpec,
    ExistingVpcSpec,
    LustreSpec,
)
from tests.infra.plan import Plan, cluster_plan, plan
from tests.infra.providers.aws.test_plan_of_aws import with_provider

KEY = "arn:aws:kms:us-east-2:123456789012:key/0a1b2c3d-0000-0000-0000-000000000000"
SUBNETS = {f"us-east-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "abc"}
VPC = "vpc-0123456789abcdef0"
GROUP = "sg-0123456789abcdef0"
FILESYSTEM = "fs-0123456789abcdef0"
NETWORK = AwsNetworkSpec(existing=ExistingVpcSpec(id=VPC, subnets=SUBNETS))


@pytest.fixture(scope="module")
def found(aws: Stack, rendered: Path) -> Plan:
    stack = with_provider(aws, network=NETWORK, kms_key=KEY, existing_bucket=True, interruption_queue=True)
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


def test_an_existing_lustre_is_mounted_and_lets_the_nodes_in(aws: Stack, rendered: Path) -> None:
    existing = ExistingLustreSpec(id=FILESYSTEM, mount_name="abcdefgh", security_group=GROUP)
    lustre = LustreSpec(kind="lustre", capacity_gib=19200, zone="us-east-2b", existing=existing)
    found = plan(with_provider(aws, network=NETWORK, filesystem=lustre), rendered)
    assert not any(":fsx/" in each.type for each in found.resources)
    rules = {
        (rule["securityGroupId"], rule["referencedSecurityGroupId"], rule["fromPort"], rule["toPort"])
        for rule in found.named("SecurityGroupIngressRule").values()
    }
    nodes = "ClusterGroup/training"
    ports = ((988, 988), (1018, 1023))
    assert rules == {(*pair, *port) for pair in ((GROUP, nodes), (nodes, GROUP)) for port in ports}
    volumes = {each["spec"]["csi"]["volumeHandle"] for each in found.named("PersistentVolume").values()}
    assert f"{FILESYSTEM}/checkpoints/research" in volumes
    attributes = [
        each["spec"]["csi"]["volumeAttributes"] for each in found.named("PersistentVolume").values()
    ]
    assert {each["dnsname"] for each in attributes} == {f"{FILESYSTEM}.fsx.us-east-2.amazonaws.com"}
    assert {each["mountname"].partition("/")[0] for each in attributes} == {"abcdefgh"}


def test_an_existing_efs_is_mounted_and_lets_the_nodes_in(aws: Stack, rendered: Path) -> None:
    efs = EfsSpec(kind="efs", existing=ExistingEfsSpec(id=FILESYSTEM, security_group=GROUP))
    found = plan(with_provider(aws, network=NETWORK, filesystem=efs), rendered)
    assert not any(":efs/" in each.type for each in found.resources)
    (rule,) = found.named("SecurityGroupIngressRule").values()
    assert (rule["securityGroupId"], rule["referencedSecurityGroupId"]) == (GROUP, "ClusterGroup/training")
    assert (rule["fromPort"], rule["toPort"]) == (2049, 2049)
    volumes = {each["spec"]["csi"]["volumeHandle"] for each in found.named("PersistentVolume").values()}
    assert f"{FILESYSTEM}:/checkpoints/research" in volumes
