"""Finds a stack's resources that an AWS account has and the state lacks; moto is the account."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.errors import TrainyardError
from infra.targets.aws.account.find import KEY, AwsFinder
from infra.targets.finder import UNKNOWN, lookups
from rehearsal.aws.account import MotoAccount
from rehearsal.aws.client import PLACEMENT_GROUP, clients
from rehearsal.aws.existing import Existing
from rehearsal.aws.models import client
from rehearsal.cloud import CreatedResource, RequestedResource
from rehearsal.store import ResourceStore, StoredResource
from tests.infra.golden import golden_plan

REGION = "us-east-2"
TAGS = {"trainyard.dev/stack": "training"}


@pytest.fixture
def account() -> Iterator[MotoAccount]:
    with MotoAccount(REGION) as account:
        yield account


@pytest.fixture
def finder(account: MotoAccount, tmp_path: Path) -> AwsFinder:
    return AwsFinder("training", REGION, "123456789012", clients(REGION, tmp_path))


def make(account: MotoAccount, token: str, name: str, inputs: dict[str, Any]) -> CreatedResource:
    return account.create(RequestedResource(token, name, inputs, default_tags=TAGS))


def test_a_resource_without_a_name_is_found_by_tags_or_place(account: MotoAccount, finder: AwsFinder) -> None:
    vpc = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "training"}}
    assert finder.find_begun("aws:ec2/vpc:Vpc", "training-vpc", vpc) is None
    made = make(account, "aws:ec2/vpc:Vpc", "training-vpc", vpc)
    assert finder.find_begun("aws:ec2/vpc:Vpc", "training-vpc", vpc) == made.id
    subnet = {"vpcId": made.id, "cidrBlock": "10.0.0.0/24", "availabilityZone": "us-east-2a"}
    assert finder.find_begun("aws:ec2/subnet:Subnet", "a", subnet) is None
    inside = make(account, "aws:ec2/subnet:Subnet", "a", subnet)
    assert finder.find_begun("aws:ec2/subnet:Subnet", "a", subnet) == inside.id
    table = {"vpcId": made.id, "tags": {"Name": "training-private"}}
    of_vpc = make(account, "aws:ec2/routeTable:RouteTable", "private", table)
    assert finder.find_begun("aws:ec2/routeTable:RouteTable", "private", table) == of_vpc.id


def test_a_vpc_of_another_stack_is_not_taken(account: MotoAccount, finder: AwsFinder) -> None:
    vpc = {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "training"}}
    account.create(
        RequestedResource("aws:ec2/vpc:Vpc", "x", vpc, default_tags={"trainyard.dev/stack": "other"})
    )
    assert finder.find_begun("aws:ec2/vpc:Vpc", "training-vpc", vpc) is None


def test_resources_in_an_existing_network_are_found_by_the_networks_ids(tmp_path: Path) -> None:
    there = Existing(
        "vpc-0123456789abcdef0", {"us-east-2a": "subnet-0123456789abcdea0"}, ["sg-0123456789abcdef0"]
    )
    own = {"name": "training-efa", "description": "fabric", "vpcId": there.vpc}
    rule = {
        "securityGroupId": there.groups[0],
        "referencedSecurityGroupId": there.groups[0],
        "ipProtocol": "-1",
    }
    api = {
        "securityGroupId": there.groups[0],
        "cidrIpv4": "10.8.0.0/24",
        "ipProtocol": "tcp",
        "fromPort": 443,
        "toPort": 443,
    }
    with MotoAccount(REGION, there) as account:
        finder = AwsFinder("training", REGION, "123456789012", clients(REGION, tmp_path))
        for token, name, inputs in (
            ("aws:ec2/securityGroup:SecurityGroup", "training-efa", own),
            ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "training-within", rule),
            ("aws:vpc/securityGroupIngressRule:SecurityGroupIngressRule", "training-api-10.8.0.0-24", api),
        ):
            assert finder.find_begun(token, name, inputs) is None
            made = make(account, token, name, inputs)
            assert finder.find_begun(token, name, inputs) == made.id


def test_a_key_is_found_by_its_description(account: MotoAccount, finder: AwsFinder) -> None:
    key = {"description": "training: data", "deletionWindowInDays": 30, "policy": "{}"}
    made = make(account, "aws:kms/key:Key", "training-data-key", key)
    assert finder.find_begun("aws:kms/key:Key", "training-data-key", key) == made.id
    assert finder.find_begun("aws:kms/key:Key", "other", {"description": "training: cluster"}) is None


def test_a_resource_with_a_name_is_found_by_it(account: MotoAccount, finder: AwsFinder) -> None:
    role = {"name": "node-1a2b3c4", "assumeRolePolicy": "{}"}
    assert finder.find_begun("aws:iam/role:Role", "node", role) is None
    make(account, "aws:iam/role:Role", "node", role)
    assert finder.find_begun("aws:iam/role:Role", "node", role) == "node-1a2b3c4"
    group = {"name": "/logs", "retentionInDays": 30}
    make(account, "aws:cloudwatch/logGroup:LogGroup", "logs", group)
    assert finder.find_begun("aws:cloudwatch/logGroup:LogGroup", "logs", group) == "/logs"


def test_types_of_other_clouds_are_ignored(finder: AwsFinder) -> None:
    assert finder.find_begun("gcp:storage/bucket:Bucket", "b", {"name": "b"}) is None


def test_a_resource_is_found_by_its_earlier_generated_name(account: MotoAccount, finder: AwsFinder) -> None:
    role = {"name": "node-1a2b3c4", "assumeRolePolicy": "{}"}
    announced = {**role, "name": "node-9999999"}
    assert finder.find_announced("aws:iam/role:Role", "node", announced) is None
    make(account, "aws:iam/role:Role", "node", role)
    make(account, "aws:iam/role:Role", "node-2", {**role, "name": "node-2-1a2b3c4"})
    assert finder.find_announced("aws:iam/role:Role", "node", announced) == (
        "node-1a2b3c4",
        {"name": "node-1a2b3c4"},
    )
    make(account, "aws:iam/role:Role", "node", {**role, "name": "node-5d6e7f8"})
    with pytest.raises(TrainyardError, match="node-1a2b3c4, node-5d6e7f8"):
        finder.find_announced("aws:iam/role:Role", "node", announced)


def test_a_placement_group_is_found_among_recorded_resources(account: MotoAccount, tmp_path: Path) -> None:
    finder = AwsFinder("training", REGION, "123456789012", clients(REGION, tmp_path))
    group = {"strategy": "cluster"}
    announced = {**group, "name": "training-on-demand-0000000"}
    assert finder.find_announced(PLACEMENT_GROUP, "training-on-demand", announced) is None
    name = "training-on-demand-1a2b3c4"
    stored = StoredResource(
        f"urn:pulumi:s::p::{PLACEMENT_GROUP}::training-on-demand", name, group, {"name": name}
    )
    ResourceStore(tmp_path).put(stored)
    assert finder.find_announced(PLACEMENT_GROUP, "training-on-demand", announced) == (name, {"name": name})
    vpc = make(account, "aws:ec2/vpc:Vpc", "v", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "v"}})
    assert finder.find_begun("aws:ec2/vpc:Vpc", "v", {"tags": {"Name": "v"}}) == vpc.id


def test_unknown_values_identify_nothing(account: MotoAccount, finder: AwsFinder) -> None:
    subnet = {"vpcId": UNKNOWN, "cidrBlock": "10.0.0.0/24", "availabilityZone": "us-east-2a"}
    assert finder.find_announced("aws:ec2/subnet:Subnet", "a", subnet) is None
    group = {"clusterName": "gone", "nodeGroupName": "gpu-1a2b3c4"}
    assert finder.find_announced("aws:eks/nodeGroup:NodeGroup", "gpu", group) is None


def test_a_bucket_is_adopted_only_with_the_stacks_tag(account: MotoAccount, finder: AwsFinder) -> None:
    bucket = {"bucket": "checkpoints", "region": REGION}
    account.create(
        RequestedResource("aws:s3/bucket:Bucket", "b", bucket, default_tags={"trainyard.dev/stack": "other"})
    )
    assert finder.find_begun("aws:s3/bucket:Bucket", "b", bucket) == "checkpoints"
    assert finder.find_announced("aws:s3/bucket:Bucket", "b", bucket) is None
    ours = {**bucket, "bucket": "checkpoints-2"}
    make(account, "aws:s3/bucket:Bucket", "b", ours)
    assert finder.find_announced("aws:s3/bucket:Bucket", "b", ours) == ("checkpoints-2", {})


def test_a_name_that_begins_with_another_ones_is_not_taken_for_it(
    account: MotoAccount, finder: AwsFinder
) -> None:
    group, queue = "aws:cloudwatch/logGroup:LogGroup", "aws:sqs/queue:Queue"
    make(account, group, "logs", {"name": "/logs-of-another", "retentionInDays": 30})
    make(account, queue, "queue", {"name": "training-2", "messageRetentionSeconds": 300})
    assert finder.find_begun(group, "logs", {"name": "/logs"}) is None
    assert finder.find_begun(queue, "queue", {"name": "training"}) is None
    make(account, queue, "queue", {"name": "training", "messageRetentionSeconds": 300})
    assert str(finder.find_begun(queue, "queue", {"name": "training"})).endswith("/training")


def test_a_resource_with_a_generated_id_is_not_identified_by_its_inputs() -> None:
    asked: list[tuple[str, dict[str, Any]]] = []

    class FakeFsxService:
        def can_paginate(self, _operation: str) -> bool:
            return False

        def __getattr__(self, operation: str) -> Any:
            def answer(**parameters: Any) -> dict[str, Any]:
                asked.append((operation, parameters))
                links = [{"FileSystemPath": "/", "AssociationId": "dra-0b1cfaeca11088b10"}]
                return {"Associations": links, "associations": [{"associationId": "a-yrpsdroc4ei7k6xps"}]}

            return answer

    finder = AwsFinder("training", REGION, "123456789012", lambda _service: FakeFsxService())
    link = {"fileSystemId": "fs-1", "fileSystemPath": "/"}
    token = "aws:fsx/dataRepositoryAssociation:DataRepositoryAssociation"
    assert finder.find_begun(token, "link", link) == "dra-0b1cfaeca11088b10"
    assert finder.find_begun(token, "link", {**link, "fileSystemPath": "/other"}) is None
    pods = {"clusterName": "training", "namespace": "team-a", "serviceAccount": "default"}
    token = "aws:eks/podIdentityAssociation:PodIdentityAssociation"
    assert finder.find_begun(token, "pods", pods) == "a-yrpsdroc4ei7k6xps"
    assert asked[-1] == ("list_pod_identity_associations", pods)


LOOKUPS = lookups("infra.targets.aws.account")


def test_every_type_of_the_stacks_can_be_looked_up() -> None:
    plans = [golden_plan(name) for name in ("aws", "aws-dev", "autoscaled-aws")]
    types = {urn.partition("::")[0].rpartition("$")[2] for plan in plans for urn in plan}
    made_again_the_same = {"aws:ec2/defaultSecurityGroup:DefaultSecurityGroup"}
    sought = {token for token in types if token.startswith("aws:")} - made_again_the_same
    assert len(sought) > 30
    assert sought - {KEY} <= LOOKUPS.keys()


@pytest.mark.parametrize("token", LOOKUPS)
def test_each_look_up_is_an_operation_of_aws_with_valid_parameters(token: str) -> None:
    for call in (LOOKUPS[token][part] for part in ("find", "read", "names") if part in LOOKUPS[token]):
        ((name, parameters),) = ((key, value) for key, value in call.items() if key != "at")
        service, operation = name.split(".")
        meta = client(service, REGION).meta
        model = meta.service_model.operation_model(meta.method_to_api_mapping[operation])
        known = set(model.input_shape.members) if model.input_shape else set()
        known |= {"Filters"} & {f"{each}s" for each in known if service == "ec2"}  # boto3's alias of `Filter`
        assert parameters.keys() <= known


def test_a_look_up_with_a_wrong_id_or_key_finds_nothing(
    account: MotoAccount, finder: AwsFinder, monkeypatch: pytest.MonkeyPatch
) -> None:
    token, role = "aws:iam/role:Role", {"name": "node-1a2b3c4", "assumeRolePolicy": "{}"}
    identity = make(account, token, "node", role).id
    assert finder.find_begun(token, "node", role) == identity
    with monkeypatch.context() as patch:
        patch.setitem(LOOKUPS, token, {**LOOKUPS[token], "id": "role/{name}"})
        assert finder.find_begun(token, "node", role) != identity
    wrong = {"iam.get_role": {"RoleName": "{name}"}, "at": "role"}
    monkeypatch.setitem(LOOKUPS, token, {**LOOKUPS[token], "read": wrong})
    assert finder.find_begun(token, "node", role) is None
