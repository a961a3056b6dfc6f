"""What was made and not written down is found again, and only that."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.errors import TrainyardError
from infra.targets.aws.account.find import Finder
from rehearsal.aws.account import Account
from rehearsal.aws.lacking import PLACEMENT_GROUP, Ec2
from rehearsal.aws.models import client
from rehearsal.aws.there import There
from rehearsal.cloud import Made, Resource
from rehearsal.store import Kept, Store
from rehearsal.wire import UNKNOWN

REGION = "us-east-2"
TAGS = {"trainyard.dev/stack": "training"}


@pytest.fixture
def account() -> Iterator[Account]:
    with Account(REGION) as account:
        yield account


@pytest.fixture
def finder(account: Account) -> Finder:
    return Finder("training", REGION, "123456789012", lambda service: client(service, REGION))


def make(account: Account, token: str, name: str, inputs: dict[str, Any]) -> Made:
    return account.create(Resource(token, name, inputs, default_tags=TAGS))


def test_what_has_no_name_is_found_by_its_tags_or_its_place(account: Account, finder: Finder) -> None:
    vpc = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "training"}}
    assert finder.find("aws:ec2/vpc:Vpc", "training-vpc", vpc) is None
    made = make(account, "aws:ec2/vpc:Vpc", "training-vpc", vpc)
    assert finder.find("aws:ec2/vpc:Vpc", "training-vpc", vpc) == made.id
    subnet = {"vpcId": made.id, "cidrBlock": "10.0.0.0/24", "availabilityZone": "us-east-2a"}
    assert finder.find("aws:ec2/subnet:Subnet", "a", subnet) is None
    inside = make(account, "aws:ec2/subnet:Subnet", "a", subnet)
    assert finder.find("aws:ec2/subnet:Subnet", "a", subnet) == inside.id
    table = {"vpcId": made.id, "tags": {"Name": "training-private"}}
    of_vpc = make(account, "aws:ec2/routeTable:RouteTable", "private", table)
    assert finder.find("aws:ec2/routeTable:RouteTable", "private", table) == of_vpc.id


def test_a_vpc_of_another_stack_is_not_taken(account: Account, finder: Finder) -> None:
    vpc = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "training"}}
    account.create(Resource("aws:ec2/vpc:Vpc", "x", vpc, default_tags={"trainyard.dev/stack": "other"}))
    assert finder.find("aws:ec2/vpc:Vpc", "training-vpc", vpc) is None


def test_what_is_in_a_network_that_was_there_is_found_by_the_networks_own_ids() -> None:
    there = There(
        "vpc-0123456789abcdef0", {"us-east-2a": "subnet-0123456789abcdea0"}, ["sg-0123456789abcdef0"]
    )
    own = {"name": "training-efa", "description": "fabric", "vpcId": there.vpc}
    rule = {
        "securityGroupId": there.groups[0],
        "referencedSecurityGroupId": there.groups[0],
        "ipProtocol": "-1",
    }
    with Account(REGION, there) as account:
        finder = Finder("training", REGION, "123456789012", lambda service: client(service, REGION))
        for token, name, inputs in (
            ("aws:ec2/securityGroup:SecurityGroup", "training-efa", own),
            ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "training-within", rule),
        ):
            assert finder.find(token, name, inputs) is None
            made = make(account, token, name, inputs)
            assert finder.find(token, name, inputs) == made.id


def test_a_key_is_found_by_its_description(account: Account, finder: Finder) -> None:
    key = {"description": "training: data", "deletionWindowInDays": 30, "policy": "{}"}
    made = make(account, "aws:kms/key:Key", "training-data-key", key)
    assert finder.find("aws:kms/key:Key", "training-data-key", key) == made.id
    assert finder.find("aws:kms/key:Key", "other", {"description": "training: cluster"}) is None


def test_what_has_a_name_is_found_by_it(account: Account, finder: Finder) -> None:
    role = {"name": "node-1a2b3c4", "assumeRolePolicy": "{}"}
    assert finder.find("aws:iam/role:Role", "node", role) is None
    make(account, "aws:iam/role:Role", "node", role)
    assert finder.find("aws:iam/role:Role", "node", role) == "node-1a2b3c4"
    group = {"name": "/logs", "retentionInDays": 30}
    make(account, "aws:cloudwatch/logGroup:LogGroup", "logs", group)
    assert finder.find("aws:cloudwatch/logGroup:LogGroup", "logs", group) == "/logs"


def test_types_of_other_clouds_are_left_alone(finder: Finder) -> None:
    assert finder.find("gcp:storage/bucket:Bucket", "b", {"name": "b"}) is None


def test_what_a_preview_announces_is_found_under_the_name_that_was_made_up_before(
    account: Account, finder: Finder
) -> None:
    role = {"name": "node-1a2b3c4", "assumeRolePolicy": "{}"}
    announced = {**role, "name": "node-9999999"}
    assert finder.announced("aws:iam/role:Role", "node", announced) is None
    make(account, "aws:iam/role:Role", "node", role)
    make(account, "aws:iam/role:Role", "node-2", {**role, "name": "node-2-1a2b3c4"})
    assert finder.announced("aws:iam/role:Role", "node", announced) == (
        "node-1a2b3c4",
        {"name": "node-1a2b3c4"},
    )
    make(account, "aws:iam/role:Role", "node", {**role, "name": "node-5d6e7f8"})
    with pytest.raises(TrainyardError, match="node-1a2b3c4, node-5d6e7f8"):
        finder.announced("aws:iam/role:Role", "node", announced)


def test_a_placement_group_which_moto_lacks_is_found_in_what_was_made(
    account: Account, tmp_path: Path
) -> None:
    def ask(service: str) -> Any:
        return Ec2(client(service, REGION), tmp_path) if service == "ec2" else client(service, REGION)

    finder, group = Finder("training", REGION, "123456789012", ask), {"strategy": "cluster"}
    announced = {**group, "name": "training-on-demand-0000000"}
    assert finder.announced(PLACEMENT_GROUP, "training-on-demand", announced) is None
    name = "training-on-demand-1a2b3c4"
    kept = Kept(f"urn:pulumi:s::p::{PLACEMENT_GROUP}::training-on-demand", name, group, {"name": name})
    Store(tmp_path).put(kept)
    assert finder.announced(PLACEMENT_GROUP, "training-on-demand", announced) == (name, {"name": name})
    vpc = make(account, "aws:ec2/vpc:Vpc", "v", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "v"}})
    assert finder.find("aws:ec2/vpc:Vpc", "v", {"tags": {"Name": "v"}}) == vpc.id


def test_what_is_not_known_yet_tells_nothing(account: Account, finder: Finder) -> None:
    subnet = {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24", "availabilityZone": "us-east-2a"}
    assert finder.announced("aws:ec2/subnet:Subnet", "a", subnet) is None
    group = {"clusterName": "gone", "nodeGroupName": "gpu-1a2b3c4"}
    assert finder.announced("aws:eks/nodeGroup:NodeGroup", "gpu", group) is None


def test_a_bucket_is_adopted_with_the_stacks_tag_alone(account: Account, finder: Finder) -> None:
    bucket = {"bucket": "checkpoints", "region": REGION}
    account.create(
        Resource("aws:s3/bucket:Bucket", "b", bucket, default_tags={"trainyard.dev/stack": "other"})
    )
    assert finder.find("aws:s3/bucket:Bucket", "b", bucket) == "checkpoints"
    assert finder.announced("aws:s3/bucket:Bucket", "b", bucket) is None
    ours = {**bucket, "bucket": "checkpoints-2"}
    make(account, "aws:s3/bucket:Bucket", "b", ours)
    assert finder.announced("aws:s3/bucket:Bucket", "b", ours) == ("checkpoints-2", {})
