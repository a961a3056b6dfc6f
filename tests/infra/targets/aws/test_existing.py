"""Existing AWS resources, such as a VPC or a cluster, are used, and neither created nor deleted."""

from datetime import date
from pathlib import Path

import pytest

from infra.stackfile import Stack
from infra.stackfile.node_pool import Nodes
from infra.targets.aws.stackfile.target import (
    AwsNetworkSpec,
    AwsSpec,
    EfsSpec,
    ExistingEfsSpec,
    ExistingEksSpec,
    ExistingLustreSpec,
    ExistingVpcSpec,
    LustreSpec,
)
from infra.targets.aws.stackfile.validators import ADDONS
from rehearsal.aws.account import MotoAccount
from rehearsal.aws.existing import Existing
from rehearsal.aws.models import client
from tests.infra.evaluated import findings
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.aws.test_moto import Lifecycle, in_order
from tests.infra.targets.aws.test_plan_of_aws import with_provider
from trainyard.cost.price import price_report

KEY = "arn:aws:kms:us-east-2:123456789012:key/0a1b2c3d-0000-0000-0000-000000000000"
SUBNETS = {f"us-east-2{letter}": f"subnet-0123456789abcde{letter}0" for letter in "abc"}
VPC = "vpc-0123456789abcdef0"
GROUP = "sg-0123456789abcdef0"
FILESYSTEM = "fs-0123456789abcdef0"
EKS = ExistingEksSpec(
    name="shared",
    endpoint="https://0A1B2C3D4E5F.gr7.us-east-2.eks.amazonaws.com",
    certificate_authority="Y2E=",
    security_group=GROUP,
    version="1.35",
    authentication_mode="API",
    addons=(*ADDONS, "aws-fsx-csi-driver"),
)
NETWORK = AwsNetworkSpec(existing=ExistingVpcSpec(id=VPC, subnets=SUBNETS))


@pytest.fixture(scope="module")
def found(aws: Stack, rendered: Path) -> Plan:
    stack = with_provider(aws, network=NETWORK, kms_key=KEY, existing_bucket=True, interruption_queue=True)
    return cluster_plan(stack, rendered)


def test_existing_vpc_key_and_bucket_are_used_and_the_rest_is_the_golden_plan(found: Plan) -> None:
    """A VPC, a key and a bucket that exist are no resources; a queue gets every preemption notice of EC2."""
    assert_golden(blocks_of(found, "aws:"), "existing-aws")


def test_an_existing_lustre_is_mounted_and_admits_the_nodes(aws: Stack, rendered: Path) -> None:
    existing = ExistingLustreSpec(id=FILESYSTEM, mount_name="abcdefgh", security_group=GROUP)
    lustre = LustreSpec.model_validate(
        {"kind": "lustre", "capacity": "19200Gi", "zone": "us-east-2b", "existing": existing}
    )
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


def test_an_existing_efs_is_mounted_and_admits_the_nodes(aws: Stack, rendered: Path) -> None:
    efs = EfsSpec(kind="efs", existing=ExistingEfsSpec(id=FILESYSTEM, security_group=GROUP))
    found = plan(with_provider(aws, network=NETWORK, filesystem=efs), rendered)
    assert not any(":efs/" in each.type for each in found.resources)
    (rule,) = found.named("SecurityGroupIngressRule").values()
    assert (rule["securityGroupId"], rule["referencedSecurityGroupId"]) == (GROUP, "ClusterGroup/training")
    assert (rule["fromPort"], rule["toPort"]) == (2049, 2049)
    volumes = {each["spec"]["csi"]["volumeHandle"] for each in found.named("PersistentVolume").values()}
    assert f"{FILESYSTEM}:/checkpoints/research" in volumes


@pytest.fixture(scope="module")
def in_a_cluster(aws: Stack) -> Stack:
    assert isinstance(aws.target, AwsSpec)
    access = aws.target.access.model_copy(update={"viewers": ()})
    return with_provider(aws, network=NETWORK, existing_cluster=EKS, access=access)


@pytest.fixture(scope="module")
def beside(in_a_cluster: Stack, rendered: Path) -> Plan:
    return plan(in_a_cluster, rendered)


def test_what_goes_into_an_existing_cluster_is_the_golden_plan(beside: Plan) -> None:
    assert_golden({**blocks_of(beside, "aws:"), "outputs": dict(beside.outputs)}, "beside-aws")


def test_its_objects_are_deleted_one_by_one_since_the_cluster_is_retained(beside: Plan) -> None:
    objects = [each for each in beside.resources if each.type.startswith("kubernetes:")]
    assert objects
    assert {each.deleted_with for each in objects} == {""}
    assert "disk" not in beside.named("StorageClass")


def test_the_policies_let_it_pass(beside: Plan, in_a_cluster: Stack, rendered: Path) -> None:
    assert findings("aws", beside) == []
    assert findings("aws", plan(in_a_cluster, rendered, preview=True)) == []


def test_its_control_plane_is_not_among_the_stacks_costs(in_a_cluster: Stack, aws: Stack) -> None:
    today = date(2026, 11, 22)
    assert "control plane" in [each.name for each in price_report(aws, today).services]
    assert not price_report(in_a_cluster, today).services


def test_an_autoscaler_resizes_groups_of_that_cluster_alone(in_a_cluster: Stack, rendered: Path) -> None:
    *others, on_demand = (pool for pool in in_a_cluster.pools if pool.name != "preprocessing")
    pools = (*others, on_demand.model_copy(update={"nodes": Nodes(4, 0)}))
    found = plan(in_a_cluster.model_copy(update={"pools": pools}), rendered)
    values = found.named("Release")["cluster-autoscaler"]["values"]
    assert values["autoDiscovery"]["clusterName"] == "shared"
    assert "k8s.io/cluster-autoscaler/shared=owned" in values["autoDiscovery"]["tags"]
    policy = found.named("RolePolicy")["training-cluster-autoscaler"]["policy"]
    assert "aws:ResourceTag/k8s.io/cluster-autoscaler/shared" in policy
    assert "nodegroup/shared/*" in policy


def test_all_of_it_passes_motos_lifecycle_in_existing_resources(in_a_cluster: Stack, rendered: Path) -> None:
    there = Existing(VPC, SUBNETS, [GROUP], "shared", "example-training-checkpoints")
    found = cluster_plan(with_provider(in_a_cluster, existing_bucket=True), rendered)
    with MotoAccount("us-east-2", there) as account:
        life = Lifecycle(account)
        for registered in in_order(found):
            life.create(registered)
        assert all(account.exists(each) for each in life.made)
        for resource in reversed(life.made):
            account.delete(resource)
        eks = client("eks", "us-east-2")
        assert eks.describe_cluster(name="shared")["cluster"]["status"] == "ACTIVE"
        assert eks.list_nodegroups(clusterName="shared")["nodegroups"] == []
