"""The preflight of an AWS account reports what it lacks before `up`; moto is the account."""

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.stackfile import Stack, load, parse
from infra.stackfile.node_pool import Nodes, ReservationSpec
from infra.targets.aws.account import preflight
from infra.targets.aws.account.preflight import _cluster, _filesystem, _quotas, _wanted, problems, role_of
from infra.targets.aws.stackfile.groups import groups
from infra.targets.aws.stackfile.target import (
    AwsSpec,
    EfsSpec,
    ExistingEfsSpec,
    ExistingLustreSpec,
    LustreSpec,
)
from rehearsal.aws.account import MotoAccount
from rehearsal.aws.models import client
from tests.infra.golden import CASES
from tests.infra.plan import stack_file
from tests.tables import table

ROLE = "arn:aws:iam::123456789012:role/platform"


class FakeSts:
    """A fake of STS: the user's session."""

    def __init__(self, account: str = "123456789012", role: str = "platform") -> None:
        self.identity = {"Account": account, "Arn": f"arn:aws:sts::{account}:assumed-role/{role}/me"}

    def get_caller_identity(self) -> Mapping[str, str]:
        return self.identity


class FakeServiceQuotas:
    """A fake of Service Quotas, of which moto has only those of VPCs."""

    def __init__(self, listed: Mapping[str, str] | None = None, **vcpus: float) -> None:
        self.vcpus = vcpus
        self.listed = listed or {}

    def get_paginator(self, operation: str) -> "FakeServiceQuotas":
        assert operation == "list_service_quotas"
        return self

    def paginate(self, *, ServiceCode: str) -> list[Mapping[str, Any]]:  # noqa: N803
        assert ServiceCode == "ec2"
        return [{"Quotas": [{"QuotaName": name, "QuotaCode": code}]} for name, code in self.listed.items()]

    def get_service_quota(self, *, ServiceCode: str, QuotaCode: str) -> Mapping[str, Any]:  # noqa: N803
        assert ServiceCode == "ec2"
        return {"Quota": {"Value": self.vcpus.get(QuotaCode.replace("-", "_"), 10_000.0)}}


class FakeIamSimulator:
    """A fake of IAM's policy simulator, which moto lacks."""

    def __init__(self, *denied: str, lacks: str = "") -> None:
        self.denied = denied
        self.lacks = lacks
        """Name of a role that does not exist."""

    def get_role(self, *, RoleName: str) -> Mapping[str, Any]:  # noqa: N803
        if RoleName == self.lacks:
            raise ClientError({"Error": {"Code": "NoSuchEntity", "Message": RoleName}}, "GetRole")
        return {"Role": {"Arn": f"arn:aws:iam::123456789012:role/people/{RoleName}"}}

    def get_paginator(self, operation: str) -> "FakeIamSimulator":
        assert operation == "simulate_principal_policy"
        return self

    def paginate(self, *, PolicySourceArn: str, ActionNames: list[str]) -> list[Mapping[str, Any]]:  # noqa: N803
        assert PolicySourceArn.startswith("arn:aws:iam::123456789012:role/people/")
        decided = [
            {"EvalActionName": name, "EvalDecision": "implicitDeny" if name in self.denied else "allowed"}
            for name in ActionNames
        ]
        return [{"EvaluationResults": decided}]


@pytest.fixture
def account() -> Iterator[MotoAccount]:
    with MotoAccount("us-east-2") as account:
        yield account


def found(stack: Stack, **services: Any) -> dict[str, str]:
    """Return problems by path; `services` replace moto's."""
    asked = {"sts": FakeSts(), "service-quotas": FakeServiceQuotas(), "iam": FakeIamSimulator(), **services}
    spec = stack.target
    assert isinstance(spec, AwsSpec)
    given = problems(stack, spec, lambda service: asked.get(service) or client(service, "us-east-2"))
    return {problem.path: problem.got for problem in given}


def changed(stack: Stack, **provider: Any) -> Stack:
    data = stack.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data["target"] |= provider
    return parse(data)


@pytest.fixture(scope="module")
def shipped() -> Stack:
    return load(stack_file("aws-dev"))


@pytest.fixture(scope="module")
def dev(shipped: Stack) -> Stack:
    """Return the shipped stack with a separate network."""
    return changed(shipped, access={"admins": [ROLE], "public_cidrs": ["198.18.7.7/32"]})


def test_an_account_that_lacks_nothing_has_no_problem(account: MotoAccount, dev: Stack) -> None:
    assert found(dev) == {}


def test_the_example_networks_of_the_shipped_file_are_refused(account: MotoAccount, shipped: Stack) -> None:
    problems = found(shipped)
    assert problems == {"target.access.public_cidrs[0]": "203.0.113.7/32, the example's"}


def test_a_private_endpoint_in_a_new_network_is_refused_since_no_host_reaches_it(
    account: MotoAccount, dev: Stack
) -> None:
    private = changed(dev, access={"admins": [ROLE]})
    assert found(private).keys() == {"target.access.public_cidrs"}
    assert found(private.model_copy(update={"name": "shared"}), eks=EksClusters()) == {}


def test_a_new_account_lacks_the_service_linked_roles(account: MotoAccount, dev: Stack) -> None:
    name = "AWSServiceRoleForAmazonEKSNodegroup"
    assert found(dev, iam=FakeIamSimulator(lacks=name)) == {f"service-linked role {name}": "missing"}
    assert found(dev, iam=FakeIamSimulator(lacks="AWSServiceRoleForEC2Spot")) == {}


class Ec2WithCapacityBlock:
    """Moto's EC2, with a capacity block."""

    def __init__(self, **block: Any) -> None:
        usual = {"InstanceType": "p5en.48xlarge", "TotalInstanceCount": 2, "State": "scheduled"}
        self.block = {
            **usual,
            "StartDate": datetime(2030, 1, 7, 11, 30, tzinfo=UTC),
            "EndDate": datetime(2030, 1, 14, 11, 30, tzinfo=UTC),
            **block,
        }

    def describe_capacity_reservations(self, **_: Any) -> Mapping[str, Any]:
        return {"CapacityReservations": [self.block]}


@pytest.mark.parametrize(
    ("block", "expected"),
    [
        ({}, {}),
        ({"State": "expired"}, {"pools[block].reservation.id": "cr-0123456789abcdef0 is expired"}),
        (
            {"EndDate": datetime(2030, 1, 13, 11, 30, tzinfo=UTC)},
            {"pools[block].reservation.ends": "2030-01-14T11:30:00Z"},
        ),
    ],
)
def test_a_block_matches_the_stack_file(block: dict[str, Any], expected: dict[str, str]) -> None:
    stack = load(CASES / "efa-claims" / "aws.yaml")
    problems = preflight._reservations(stack, Ec2WithCapacityBlock(**block))
    assert {problem.path: problem.got for problem in problems} == expected


@pytest.mark.parametrize(
    ("written", "arn", "expected"),
    [
        (None, None, {}),
        ("gpus", "arn:aws:ec2:us-east-2:1:placement-group/gpus", {}),
        (None, "arn:aws:ec2:us-east-2:1:placement-group/gpus", {"write `placement_group: gpus`"}),
        ("gpus", None, {"remove the key, or reserve in that group"}),
    ],
)
def test_a_reservation_in_a_placement_group_names_it(
    written: str | None, arn: str | None, expected: set[str]
) -> None:
    stack = load(CASES / "efa-claims" / "aws.yaml")
    reserved = ReservationSpec(id="cr-0123456789abcdef0", placement_group=written)
    pools = [
        pool.model_copy(update={"reservation": reserved}) if pool.reservation else pool
        for pool in stack.pools
    ]
    found = {"State": "active", "PlacementGroupArn": arn}
    problems = preflight._reservations(
        stack.model_copy(update={"pools": tuple(pools)}), Ec2WithCapacityBlock(**found)
    )
    assert {problem.fix for problem in problems} == set(expected)


def test_nothing_more_is_requested_from_another_account(account: MotoAccount, dev: Stack) -> None:
    assert found(dev, sts=FakeSts("999999999999")) == {"AWS account": "999999999999"}


def test_the_users_role_must_be_an_admin_of_the_cluster(account: MotoAccount, dev: Stack) -> None:
    problems = found(dev, sts=FakeSts(role="intern"))
    assert problems == {"target.access.admins": "arn:aws:iam::123456789012:role/intern signs in"}


P6_SPOT = "All P6 Spot Instance Requests"


def short(stack: Stack, capacity: str, quotas: FakeServiceQuotas) -> dict[str, str]:
    """Return the problems with the quotas for one P6 machine."""
    pool = stack.pools[0].model_copy(update={"machine": "p6-b200.48xlarge", "capacity": capacity})
    return {problem.path: problem.got for problem in _quotas(groups(pool, ("us-east-2a",)), quotas)}


def test_a_family_newer_than_the_list_is_found_by_the_quotas_name(dev: Stack) -> None:
    listed = {P6_SPOT: "L-00000006", "All P5 Spot Instance Requests": "L-C4BD4855"}
    assert short(dev, "spot", FakeServiceQuotas(listed, L_00000006=96.0)) == {
        f"quota: {P6_SPOT}": "192 vCPUs are needed"
    }
    assert short(dev, "spot", FakeServiceQuotas(L_7212CCBC=0.0, L_C4BD4855=0.0)) == {}
    running = "quota: Running On-Demand P instances"
    quotas = FakeServiceQuotas(listed, L_417A185B=96.0)
    assert short(dev, "on-demand", quotas) == {running: "192 vCPUs are needed"}


def test_a_quota_that_is_too_small_names_its_vcpus(account: MotoAccount, dev: Stack) -> None:
    problems = found(dev, **{"service-quotas": FakeServiceQuotas(L_DB2E81BA=2.0)})
    assert problems == {"quota: Running On-Demand G and VT instances": "4 vCPUs are needed"}


def test_a_zone_without_the_machine_is_named(account: MotoAccount, dev: Stack) -> None:
    moved = changed(dev, zones=["us-east-2a", "us-east-2f"])
    assert found(moved)["pools[gpu].zones"] == "g6.xlarge in us-east-2f"


def test_a_missing_existing_bucket_is_reported(account: MotoAccount, dev: Stack) -> None:
    problems = found(changed(dev, existing_bucket=True))
    assert problems == {"storage.object_store.bucket": "example-dev-checkpoints does not exist"}


def test_a_missing_right_is_named(account: MotoAccount, dev: Stack) -> None:
    problems = found(dev, iam=FakeIamSimulator("eks:CreateCluster", "elasticfilesystem:CreateFileSystem"))
    assert problems == {
        "IAM permissions of the caller": "not eks:CreateCluster, elasticfilesystem:CreateFileSystem"
    }


def test_free_addresses_are_counted_without_the_stacks_own(account: MotoAccount, dev: Stack) -> None:
    ec2 = client("ec2", "us-east-2")
    ours = [{"ResourceType": "elastic-ip", "Tags": [{"Key": "trainyard.dev/stack", "Value": "dev"}]}]
    ec2.allocate_address(Domain="vpc", TagSpecifications=ours)
    assert found(dev, **{"service-quotas": FakeServiceQuotas(L_0263D0A3=1.0)}) == {}
    ec2.allocate_address(Domain="vpc")
    problems = found(dev, **{"service-quotas": FakeServiceQuotas(L_0263D0A3=1.0)})
    assert problems == {"quota: EC2-VPC Elastic IPs": "1 are needed"}


def test_an_existing_subnet_must_have_room_for_the_nodes(account: MotoAccount, dev: Stack) -> None:
    ec2 = client("ec2", "us-east-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for zone, cidr in (("us-east-2a", "10.0.0.0/28"), ("us-east-2b", "10.0.1.0/24"))
    }
    many = changed(dev, network={"existing": {"id": vpc, "subnets": made}})
    pools = [pool.model_copy(update={"nodes": Nodes(20)}) for pool in many.pools]
    problems = found(many.model_copy(update={"pools": tuple(pools)}))
    path = "target.network.existing.subnets.us-east-2a"
    assert problems[path] == "11 addresses are free"
    for name in ("dev", "other"):
        tags = [{"ResourceType": "instance", "Tags": [{"Key": "trainyard.dev/stack", "Value": name}]}]
        image = ec2.describe_images()["Images"][0]["ImageId"]
        subnet = made["us-east-2a"]
        ec2.run_instances(ImageId=image, MinCount=2, MaxCount=2, SubnetId=subnet, TagSpecifications=tags)
    problems = found(many.model_copy(update={"pools": tuple(pools)}))
    assert problems[path] == "9 addresses are free"  # and those of the stack's own nodes


class TakenBucketName:
    """A fake of S3 in which the bucket's name belongs to another account."""

    def head_bucket(self, *, Bucket: str) -> None:  # noqa: N803
        raise ClientError({"Error": {"Code": "403", "Message": "Forbidden"}}, "HeadBucket")


def test_a_bucket_of_another_account_is_refused(account: MotoAccount, dev: Stack) -> None:
    problems = found(dev, s3=TakenBucketName())
    assert problems == {"storage.object_store.bucket": "example-dev-checkpoints belongs to another owner"}


def test_a_session_belongs_to_its_role() -> None:
    assert role_of("arn:aws:sts::123456789012:assumed-role/platform/me@example.com") == ROLE
    assert role_of(ROLE) == ROLE


def of_filesystem(dev: Stack, filesystem: EfsSpec | LustreSpec, **services: Any) -> dict[str, str]:
    """Return the problems of an existing filesystem."""
    assert isinstance(dev.target, AwsSpec)
    spec = dev.target.model_copy(update={"filesystem": filesystem})
    problems = _filesystem(spec, lambda service: services.get(service) or client(service, "us-east-2"))
    return {problem.path: problem.got for problem in problems}


def test_an_existing_efs_needs_a_mount_target_in_each_zone(account: MotoAccount, dev: Stack) -> None:
    efs, ec2 = client("efs", "us-east-2"), client("ec2", "us-east-2")
    made = efs.create_file_system(CreationToken="one")["FileSystemId"]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-2a")["Subnet"]
    efs.create_mount_target(FileSystemId=made, SubnetId=subnet["SubnetId"])

    def problems(filesystem: str) -> dict[str, str]:
        existing = ExistingEfsSpec(id=filesystem, security_group="sg-0123456789abcdef0")
        return of_filesystem(dev, EfsSpec(kind="efs", existing=existing))

    assert problems(made) == {"target.filesystem.existing": "no mount target in us-east-2b"}
    other = "fs-0123456789abcdef0"
    assert problems(other) == {"target.filesystem.existing.id": f"{other}: does not exist"}


class FsxFilesystem:
    """A fake of FSx with a filesystem for Lustre and one for OpenZFS."""

    def describe_file_systems(self, *, FileSystemIds: list[str]) -> Mapping[str, Any]:  # noqa: N803
        if FileSystemIds == ["fs-0123456789abcdef2"]:
            return {"FileSystems": [{"FileSystemType": "OPENZFS", "OpenZFSConfiguration": {}}]}
        if FileSystemIds != ["fs-0123456789abcdef0"]:
            raise ClientError({"Error": {"Code": "FileSystemNotFound"}}, "DescribeFileSystems")
        lustre = {"FileSystemType": "LUSTRE", "LustreConfiguration": {"MountName": "abcdefgh"}}
        return {"FileSystems": [lustre]}


@pytest.mark.parametrize(("filesystem", "name", "expected"), table(__file__, "existing")["lustre"])
def test_an_existing_lustre_has_its_mount_name(
    filesystem: str, name: str, expected: dict[str, str], dev: Stack
) -> None:
    group = "sg-0123456789abcdef0"
    existing = ExistingLustreSpec(id=filesystem, mount_name=name, security_group=group)
    lustre = LustreSpec.model_validate({"kind": "lustre", "capacity": "4800Gi", "existing": existing})
    assert of_filesystem(dev, lustre, fsx=FsxFilesystem()) == expected


ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-ebs-csi-driver")


class EksClusters:
    """A fake of EKS with one cluster, as its API describes it."""

    def __init__(self, **change: Any) -> None:
        self.cluster: dict[str, Any] = {
            "endpoint": "https://0A1B2C3D4E5F.gr7.us-east-2.eks.amazonaws.com",
            "certificateAuthority": {"data": "Y2E="},
            "resourcesVpcConfig": {
                "clusterSecurityGroupId": "sg-0123456789abcdef0",
                "vpcId": "vpc-0123456789abcdef0",
            },
            "version": "1.35",
            "accessConfig": {"authenticationMode": "API"},
            "status": "ACTIVE",
            **change,
        }
        self.addons = [*ADDONS, "aws-efs-csi-driver"]

    def describe_cluster(self, *, name: str) -> Mapping[str, Any]:
        if name != "shared":
            raise ClientError({"Error": {"Code": "ResourceNotFoundException"}}, "DescribeCluster")
        return {"cluster": self.cluster}

    def get_paginator(self, operation: str) -> "EksClusters":
        assert operation == "list_addons"
        return self

    def paginate(self, *, clusterName: str) -> list[Mapping[str, Any]]:  # noqa: N803
        assert clusterName == "shared"
        return [{"addons": self.addons}]


def of_cluster(dev: Stack, eks: EksClusters, name: str = "shared") -> dict[str, str]:
    """Return the problems of an existing cluster."""
    subnets = {zone: f"subnet-0123456789abcde{zone[-1]}0" for zone in ("us-east-2a", "us-east-2b")}
    cluster = {
        "name": name,
        "endpoint": "https://0A1B2C3D4E5F.gr7.us-east-2.eks.amazonaws.com",
        "certificate_authority": "Y2E=",
        "security_group": "sg-0123456789abcdef0",
        "version": "1.35",
        "authentication_mode": "API",
        "addons": [*ADDONS, "aws-efs-csi-driver"],
    }
    network = {"existing": {"id": "vpc-0123456789abcdef0", "subnets": subnets}}
    access = {"admins": [ROLE]}
    stack = changed(dev, existing_cluster=cluster, network=network, access=access)
    assert isinstance(stack.target, AwsSpec)
    return {problem.path.rpartition(".")[2]: problem.got for problem in _cluster(stack.target, eks)}


@pytest.mark.parametrize(("change", "problem"), table(__file__, "existing")["clusters"])
def test_a_cluster_matches_the_file(change: dict[str, Any], problem: dict[str, str], dev: Stack) -> None:
    assert of_cluster(dev, EksClusters(**change)) == problem


def test_a_missing_cluster_and_add_ons_that_it_lacks_are_reported(dev: Stack) -> None:
    assert of_cluster(dev, EksClusters(), "other") == {"name": "other: does not exist"}
    eks = EksClusters()
    eks.addons.remove("coredns")
    assert of_cluster(dev, eks) == {"addons": "coredns: does not exist"}


def test_a_stack_on_an_existing_cluster_needs_no_right_to_create_it(account: MotoAccount, dev: Stack) -> None:
    assert isinstance(dev.target, AwsSpec)
    assert "eks:CreateCluster" in _wanted(dev.target)
    existing = dev.target.model_copy(update={"existing_cluster": object()})
    assert "eks:CreateCluster" not in _wanted(existing)
