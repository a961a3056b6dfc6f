"""What an account lacks is known before `up`; moto is the account."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from botocore.exceptions import ClientError

from infra.spec import Stack, load, parse
from infra.targets.aws.account import preflight
from infra.targets.aws.account.preflight import _cluster, _filesystem, _quotas, _wanted, problems, role_of
from infra.targets.aws.spec.groups import groups
from infra.targets.aws.spec.provider import AwsSpec, EfsSpec, ExistingEfsSpec, ExistingLustreSpec, LustreSpec
from rehearsal.aws.account import MotoAccount
from rehearsal.aws.models import client
from tests.infra.golden import CASES
from tests.infra.plan import stack_file

ROLE = "arn:aws:iam::123456789012:role/platform"


class Identity:
    """The user's session."""

    def __init__(self, account: str = "123456789012", role: str = "platform") -> None:
        self.output = {"Account": account, "Arn": f"arn:aws:sts::{account}:assumed-role/{role}/me"}

    def get_caller_identity(self) -> Mapping[str, str]:
        return self.output


class Quotas:
    """Service Quotas, of which moto has those of VPCs only."""

    def __init__(self, listed: Mapping[str, str] | None = None, **vcpus: float) -> None:
        self.vcpus = vcpus
        self.listed = listed or {}

    def get_paginator(self, operation: str) -> Quotas:
        assert operation == "list_service_quotas"
        return self

    def paginate(self, *, ServiceCode: str) -> list[Mapping[str, Any]]:  # noqa: N803
        assert ServiceCode == "ec2"
        return [{"Quotas": [{"QuotaName": name, "QuotaCode": code}]} for name, code in self.listed.items()]

    def get_service_quota(self, *, ServiceCode: str, QuotaCode: str) -> Mapping[str, Any]:  # noqa: N803
        assert ServiceCode == "ec2"
        return {"Quota": {"Value": self.vcpus.get(QuotaCode.replace("-", "_"), 10_000.0)}}


class Rights:
    """IAM's simulator, which moto lacks."""

    def __init__(self, *denied: str, lacks: str = "") -> None:
        self.denied = denied
        self.lacks = lacks
        """A role that is not there."""

    def get_role(self, *, RoleName: str) -> Mapping[str, Any]:  # noqa: N803
        if RoleName == self.lacks:
            raise ClientError({"Error": {"Code": "NoSuchEntity", "Message": RoleName}}, "GetRole")
        return {"Role": {"Arn": f"arn:aws:iam::123456789012:role/people/{RoleName}"}}

    def get_paginator(self, operation: str) -> Rights:
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
    """Problems by path; `services` take the place of moto's."""
    asked = {"sts": Identity(), "service-quotas": Quotas(), "iam": Rights(), **services}
    spec = stack.provider
    assert isinstance(spec, AwsSpec)
    given = problems(stack, spec, lambda service: asked.get(service) or client(service, "us-east-2"))
    return {problem.path: problem.got for problem in given}


def changed(stack: Stack, **provider: Any) -> Stack:
    data = stack.model_dump(mode="json", by_alias=True, exclude_unset=True)
    data["provider"] |= provider
    return parse(data)


@pytest.fixture(scope="module")
def shipped() -> Stack:
    return load(stack_file("aws-dev"))


@pytest.fixture(scope="module")
def dev(shipped: Stack) -> Stack:
    """Return the shipped stack with a separate network."""
    return changed(shipped, access={"admins": [ROLE], "public_cidrs": ["198.18.7.7/32"]})


def test_an_account_that_has_all_has_no_problem(account: MotoAccount, dev: Stack) -> None:
    assert found(dev) == {}


def test_the_networks_of_the_example_are_nobodys(account: MotoAccount, shipped: Stack) -> None:
    output = found(shipped)
    assert output == {"provider.access.public_cidrs[0]": "203.0.113.7/32, the example's"}


def test_nobody_is_in_a_network_that_the_first_up_makes(account: MotoAccount, dev: Stack) -> None:
    private = changed(dev, access={"admins": [ROLE]})
    assert found(private).keys() == {"provider.access.public_cidrs"}
    assert found(private.model_copy(update={"name": "shared"}), eks=EksClusters()) == {}


def test_a_new_account_lacks_the_roles_of_services(account: MotoAccount, dev: Stack) -> None:
    name = "AWSServiceRoleForAmazonEKSNodegroup"
    assert found(dev, iam=Rights(lacks=name)) == {f"service-linked role {name}": "missing"}
    assert found(dev, iam=Rights(lacks="AWSServiceRoleForEC2Spot")) == {}


class Reservations:
    """EC2 as moto has it, with a capacity block."""

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
    ("block", "output"),
    [
        ({}, {}),
        ({"State": "expired"}, {"pools[block].reservation.id": "cr-0123456789abcdef0 is expired"}),
        (
            {"EndDate": datetime(2030, 1, 13, 11, 30, tzinfo=UTC)},
            {"pools[block].reservation.ends": "2030-01-14T11:30:00Z"},
        ),
    ],
)
def test_a_block_matches_the_stack_file(block: dict[str, Any], output: dict[str, str]) -> None:
    stack = load(CASES / "efa-claims" / "aws.yaml")
    problems = preflight._reservations(stack, Reservations(**block))
    assert {problem.path: problem.got for problem in problems} == output


def test_another_account_is_asked_nothing_more(account: MotoAccount, dev: Stack) -> None:
    assert found(dev, sts=Identity("999999999999")) == {"AWS account": "999999999999"}


def test_who_signs_in_must_be_an_admin_of_the_cluster(account: MotoAccount, dev: Stack) -> None:
    output = found(dev, sts=Identity(role="intern"))
    assert output == {"provider.access.admins": "arn:aws:iam::123456789012:role/intern signs in"}


P6_SPOT = "All P6 Spot Instance Requests"


def short(stack: Stack, capacity: str, quotas: Quotas) -> dict[str, str]:
    """What is short for one P6 machine."""
    pool = stack.pools[1].model_copy(update={"machine": "p6-b200.48xlarge", "capacity": capacity})
    return {problem.path: problem.got for problem in _quotas(groups(pool, ("us-east-2a",)), quotas)}


def test_a_family_newer_than_the_list_is_found_by_the_quotas_name(dev: Stack) -> None:
    listed = {P6_SPOT: "L-00000006", "All P5 Spot Instance Requests": "L-C4BD4855"}
    assert short(dev, "spot", Quotas(listed, L_00000006=96.0)) == {
        f"quota: {P6_SPOT}": "192 vCPUs are needed"
    }
    assert short(dev, "spot", Quotas(L_7212CCBC=0.0, L_C4BD4855=0.0)) == {}
    running = "quota: Running On-Demand P instances"
    assert short(dev, "on-demand", Quotas(listed, L_417A185B=96.0)) == {running: "192 vCPUs are needed"}


def test_a_quota_that_is_too_small_names_its_vcpus(account: MotoAccount, dev: Stack) -> None:
    output = found(dev, **{"service-quotas": Quotas(L_DB2E81BA=2.0)})
    assert output == {"quota: Running On-Demand G and VT instances": "4 vCPUs are needed"}


def test_a_zone_without_the_machine_is_named(account: MotoAccount, dev: Stack) -> None:
    moved = changed(dev, zones=["us-east-2a", "us-east-2f"])
    assert found(moved)["pools[gpu].zones"] == "g6.xlarge in us-east-2f"


def test_an_existing_bucket_is_looked_for(account: MotoAccount, dev: Stack) -> None:
    output = found(changed(dev, existing_bucket=True))
    assert output == {"storage.object_store.bucket": "example-dev-checkpoints does not exist"}


def test_a_right_that_is_lacking_is_named(account: MotoAccount, dev: Stack) -> None:
    output = found(dev, iam=Rights("eks:CreateCluster", "elasticfilesystem:CreateFileSystem"))
    assert output == {
        "IAM permissions of the caller": "not eks:CreateCluster, elasticfilesystem:CreateFileSystem"
    }


def test_addresses_that_are_free_are_counted_without_the_stacks_own(account: MotoAccount, dev: Stack) -> None:
    ec2 = client("ec2", "us-east-2")
    ours = [{"ResourceType": "elastic-ip", "Tags": [{"Key": "trainyard.dev/stack", "Value": "dev"}]}]
    ec2.allocate_address(Domain="vpc", TagSpecifications=ours)
    assert found(dev, **{"service-quotas": Quotas(L_0263D0A3=1.0)}) == {}
    ec2.allocate_address(Domain="vpc")
    output = found(dev, **{"service-quotas": Quotas(L_0263D0A3=1.0)})
    assert output == {"quota: EC2-VPC Elastic IPs": "1 are needed"}


def test_a_subnet_of_ones_own_has_room_for_the_nodes(account: MotoAccount, dev: Stack) -> None:
    ec2 = client("ec2", "us-east-2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    made = {
        zone: ec2.create_subnet(VpcId=vpc, CidrBlock=cidr, AvailabilityZone=zone)["Subnet"]["SubnetId"]
        for zone, cidr in (("us-east-2a", "10.0.0.0/28"), ("us-east-2b", "10.0.1.0/24"))
    }
    many = changed(dev, network={"existing": {"id": vpc, "subnets": made}})
    pools = [pool.model_copy(update={"num_nodes": 20}) for pool in many.pools]
    output = found(many.model_copy(update={"pools": tuple(pools)}))
    assert output["provider.network.existing.subnets.us-east-2a"] == "11 addresses are free"


class TakenBucketName:
    """S3, where the name belongs to another owner."""

    def head_bucket(self, *, Bucket: str) -> None:  # noqa: N803
        raise ClientError({"Error": {"Code": "403", "Message": "Forbidden"}}, "HeadBucket")


def test_a_bucket_of_someone_else_is_refused(account: MotoAccount, dev: Stack) -> None:
    output = found(dev, s3=TakenBucketName())
    assert output == {"storage.object_store.bucket": "example-dev-checkpoints belongs to another owner"}


def test_a_session_belongs_to_its_role() -> None:
    assert role_of("arn:aws:sts::123456789012:assumed-role/platform/me@example.com") == ROLE
    assert role_of(ROLE) == ROLE


def of_filesystem(dev: Stack, filesystem: EfsSpec | LustreSpec, **services: Any) -> dict[str, str]:
    """Problems of a filesystem that is to be there."""
    assert isinstance(dev.provider, AwsSpec)
    spec = dev.provider.model_copy(update={"filesystem": filesystem})
    output = _filesystem(spec, lambda service: services.get(service) or client(service, "us-east-2"))
    return {problem.path: problem.got for problem in output}


def test_an_existing_efs_needs_a_mount_target_in_each_zone(account: MotoAccount, dev: Stack) -> None:
    efs, ec2 = client("efs", "us-east-2"), client("ec2", "us-east-2")
    made = efs.create_file_system(CreationToken="one")["FileSystemId"]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(VpcId=vpc, CidrBlock="10.0.0.0/24", AvailabilityZone="us-east-2a")["Subnet"]
    efs.create_mount_target(FileSystemId=made, SubnetId=subnet["SubnetId"])

    def output(filesystem: str) -> dict[str, str]:
        existing = ExistingEfsSpec(id=filesystem, security_group="sg-0123456789abcdef0")
        return of_filesystem(dev, EfsSpec(kind="efs", existing=existing))

    assert output(made) == {"provider.filesystem.existing": "no mount target in us-east-2b"}
    other = "fs-0123456789abcdef0"
    assert output(other) == {"provider.filesystem.existing.id": f"{other}: does not exist"}


class FsxFilesystem:
    """FSx with one filesystem."""

    def describe_file_systems(self, *, FileSystemIds: list[str]) -> Mapping[str, Any]:  # noqa: N803
        if FileSystemIds != ["fs-0123456789abcdef0"]:
            raise ClientError({"Error": {"Code": "FileSystemNotFound"}}, "DescribeFileSystems")
        return {"FileSystems": [{"LustreConfiguration": {"MountName": "abcdefgh"}}]}


@pytest.mark.parametrize(
    ("filesystem", "name", "output"),
    [
        ("fs-0123456789abcdef0", "abcdefgh", {}),
        ("fs-0123456789abcdef0", "hgfedcba", {"provider.filesystem.existing.mount_name": "hgfedcba"}),
        (
            "fs-0123456789abcdef1",
            "abcdefgh",
            {"provider.filesystem.existing.id": "fs-0123456789abcdef1: does not exist"},
        ),
    ],
)
def test_an_existing_lustre_has_its_mount_name(
    filesystem: str, name: str, output: dict[str, str], dev: Stack
) -> None:
    group = "sg-0123456789abcdef0"
    existing = ExistingLustreSpec(id=filesystem, mount_name=name, security_group=group)
    lustre = LustreSpec(kind="lustre", capacity_gib=4800, existing=existing)
    assert of_filesystem(dev, lustre, fsx=FsxFilesystem()) == output


ADDONS = ("vpc-cni", "kube-proxy", "coredns", "eks-pod-identity-agent", "aws-ebs-csi-driver")


class EksClusters:
    """EKS with one cluster, as its API describes it."""

    def __init__(self, **change: Any) -> None:
        self.output: dict[str, Any] = {
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
        return {"cluster": self.output}

    def get_paginator(self, operation: str) -> EksClusters:
        assert operation == "list_addons"
        return self

    def paginate(self, *, clusterName: str) -> list[Mapping[str, Any]]:  # noqa: N803
        assert clusterName == "shared"
        return [{"addons": self.addons}]


def of_cluster(dev: Stack, eks: EksClusters, name: str = "shared") -> dict[str, str]:
    """Problems of a cluster that is to be there."""
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
    assert isinstance(stack.provider, AwsSpec)
    return {problem.path.rpartition(".")[2]: problem.got for problem in _cluster(stack.provider, eks)}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({}, {}),
        ({"version": "1.36"}, {"version": "1.35"}),
        ({"accessConfig": {"authenticationMode": "CONFIG_MAP"}}, {"authentication_mode": "API"}),
        ({"certificateAuthority": {"data": "YWM="}}, {"certificate_authority": "Y2E="}),
        ({"status": "UPDATING"}, {"name": "shared is UPDATING"}),
        (
            {"resourcesVpcConfig": {"clusterSecurityGroupId": "sg-0123456789abcdef0", "vpcId": "vpc-1"}},
            {"id": "vpc-0123456789abcdef0"},
        ),
    ],
)
def test_an_existing_cluster_matches_the_file(
    change: dict[str, Any], problem: dict[str, str], dev: Stack
) -> None:
    assert of_cluster(dev, EksClusters(**change)) == problem


def test_a_missing_cluster_and_add_ons_that_it_lacks_are_reported(dev: Stack) -> None:
    assert of_cluster(dev, EksClusters(), "other") == {"name": "other: does not exist"}
    eks = EksClusters()
    eks.addons.remove("coredns")
    assert of_cluster(dev, eks) == {"addons": "coredns: does not exist"}


def test_who_brings_a_cluster_needs_no_right_to_make_one(account: MotoAccount, dev: Stack) -> None:
    assert isinstance(dev.provider, AwsSpec)
    assert "eks:CreateCluster" in _wanted(dev.provider)
    existing = dev.provider.model_copy(update={"existing_cluster": object()})
    assert "eks:CreateCluster" not in _wanted(existing)
