"""The plans of the shipped AWS stacks."""

from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from infra.common.artifacts import ROOT
from infra.stackfile import Stack, load
from infra.targets.aws.stackfile.target import AwsAccessSpec, AwsSpec
from tests.infra.evaluated import assert_sound
from tests.infra.fates import assert_all_data_is_known, assert_guide_tells_fates
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan, plan, stack_file
from tests.infra.shown import blocks_of


def test_the_plan_of_the_aws_stack_is_the_golden_one(aws_plan: Plan) -> None:
    assert_golden(blocks_of(aws_plan), "aws")


def test_the_plan_of_the_aws_dev_stack_is_the_golden_one(dev_plan: Plan) -> None:
    assert_golden(blocks_of(dev_plan), "aws-dev")


def test_the_plans_are_sound(aws: Stack, aws_plan: Plan, dev_plan: Plan, rendered: Path) -> None:
    stacks = {"aws": (aws, aws_plan), "aws-dev": (load(stack_file("aws-dev")), dev_plan)}
    for name, (stack, found) in stacks.items():
        assert_sound(name, stack, found, rendered, "aws:eks/cluster:Cluster")


def test_a_runner_in_the_network_is_admitted_before_any_object_is_created(aws: Stack, rendered: Path) -> None:
    access = AwsAccessSpec(
        admins=("arn:aws:iam::123456789012:role/platform",), private_cidrs=(IPv4Network("10.8.0.0/24"),)
    )
    found = plan(with_provider(aws, access=access), rendered)
    network = found.named("Cluster")["training"]["vpcConfig"]
    assert (network["endpointPublicAccess"], network.get("publicAccessCidrs")) == (False, None)
    ((name, rule),) = (
        each for each in found.named("SecurityGroupIngressRule").items() if "cidrIpv4" in each[1]
    )
    assert (rule["securityGroupId"], rule["cidrIpv4"]) == ("ClusterGroup/training", "10.8.0.0/24")
    assert (rule["fromPort"], rule["toPort"], rule["ipProtocol"]) == (443, 443, "tcp")
    (provider,) = (each for each in found.resources if each.type == "pulumi:providers:kubernetes")
    assert any(urn.endswith(f"::{name}") for urn in provider.depends_on["kubeconfig"])


def test_without_protection_cluster_and_filesystem_can_be_deleted_and_the_bucket_is_retained(
    aws: Stack, aws_plan: Plan, rendered: Path
) -> None:
    def protected(found: Plan) -> set[str]:
        return {each.type.rpartition(":")[2] for each in found.resources if each.protect}

    assert protected(aws_plan) == {"Cluster", "Key", "Bucket", "LustreFileSystem"}
    open_plan = cluster_plan(with_provider(aws, deletion_protection=False), rendered)
    assert not protected(open_plan)
    assert open_plan.named("Cluster")["training"]["deletionProtection"] is False
    retained = {each.type.rpartition(":")[2] for each in open_plan.resources if each.retained}
    assert {"Bucket", "Key"} <= retained
    assert "LustreFileSystem" not in retained


def with_provider(stack: Stack, **changes: Any) -> Stack:
    provider = stack.target
    assert isinstance(provider, AwsSpec)
    return stack.model_copy(update={"target": provider.model_copy(update=changes)})


def test_all_data_is_known_and_the_guide_says_what_becomes_of_it(aws_plan: Plan) -> None:
    assert_all_data_is_known(aws_plan, "aws")
    assert_guide_tells_fates(aws_plan, "aws", ROOT / "docs" / "aws.md")
