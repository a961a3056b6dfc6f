"""The plans of the shipped AWS stacks."""

import json
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

from infra.common.artifacts import ROOT
from infra.stackfile import Stack
from infra.targets.aws.stackfile.target import AwsAccessSpec, AwsSpec
from tests.infra.fates import assert_all_data_is_known, assert_guide_tells_fates
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, Registration, cluster_plan, plan
from tests.infra.shown import blocks_of


def aws_resources(found: Plan) -> list[Registration]:
    return [each for each in found.resources if each.type.startswith("aws:")]


def test_the_plan_of_the_aws_stack_is_the_golden_one(aws_plan: Plan) -> None:
    assert_golden(blocks_of(aws_plan), "aws")


def test_the_plan_of_the_aws_dev_stack_is_the_golden_one(dev_plan: Plan) -> None:
    assert_golden(blocks_of(dev_plan), "aws-dev")


def test_the_first_preview_lists_every_resource_of_up(aws: Stack, aws_plan: Plan, rendered: Path) -> None:
    preview = plan(aws, rendered, preview=True)
    assert [each.urn for each in preview.resources] == [each.urn for each in aws_plan.resources]


def test_every_resource_uses_the_stacks_one_provider(aws_plan: Plan) -> None:
    (provider,) = {each.provider for each in aws_resources(aws_plan)}
    assert "pulumi:providers:aws::training" in provider


def test_objects_are_deleted_with_the_cluster(aws_plan: Plan) -> None:
    objects = [each for each in aws_plan.resources if each.type.startswith("kubernetes:")]
    assert {each.deleted_with.rpartition("$")[2] for each in objects} == {"aws:eks/cluster:Cluster::training"}


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


def test_keys_name_no_role_as_principal_that_a_new_account_lacks(aws_plan: Plan) -> None:
    """KMS refuses such a policy; a condition on the caller's ARN may name what does not exist yet."""
    policies = [json.loads(key["policy"])["Statement"] for key in aws_plan.named("Key").values()]
    principals = [each["Principal"].get("AWS", "") for statements in policies for each in statements]
    assert set(principals) == {"", "*", "arn:aws:iam::123456789012:root"}
    conditions = [each["Condition"] for each in policies[1] if each["Principal"].get("AWS") == "*"]
    assert conditions
    for condition in conditions:
        assert condition["StringEquals"]["kms:CallerAccount"] == "123456789012"
        assert condition["ArnLike"]["aws:PrincipalArn"].startswith(
            "arn:aws:iam::123456789012:role/aws-service-role/"
        )


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
