"""The platform's Kubernetes objects on AWS: pods, queues, device plugins, volumes and access."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from infra.stackfile import Stack
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.storage import CheckpointsSpec
from infra.targets.aws.stackfile.target import AwsSpec
from tests.infra.evaluated import findings
from tests.infra.plan import Plan, cluster_plan, plan
from tests.infra.targets.aws.test_plan_of_aws import with_provider


def job_pod(found: Plan, runtime: str) -> dict[str, Any]:
    jobs = found.named("ClusterTrainingRuntime")[runtime]["spec"]["template"]["spec"]["replicatedJobs"]
    pod: dict[str, Any] = jobs[0]["template"]["spec"]["template"]["spec"]
    return pod


def test_queues_count_accelerators_and_leave_out_what_comes_with_them(aws_plan: Plan) -> None:
    config = aws_plan.named("ConfigMap")["kueue-system/kueue-manager-config"]["data"]
    settings = yaml.safe_load(config["controller_manager_config.yaml"])
    prefixes = settings["resources"]["excludeResourcePrefixes"]
    limits = job_pod(aws_plan, "torch-efav3")["containers"][0]["resources"]["limits"]
    uncounted = {name for name in limits if not name.startswith(tuple(prefixes))}
    assert uncounted == {"nvidia.com/gpu"}


@pytest.fixture(scope="module")
def staged(aws: Stack, rendered: Path) -> Plan:
    """The stack with a dataset of its region, and a public one."""
    storage = aws.storage.model_copy(
        update={"checkpoints": CheckpointsSpec.model_validate({"size": "8192Gi"})}
    )
    digest = f"sha256:{'0' * 64}"
    pile = DatasetSpec.model_validate(
        {"name": "pile", "source": "s3://example-data/pile/", "digest": digest, "size": "100Gi"}
    )
    commons = DatasetSpec.model_validate(
        {"name": "commons", "source": "s3://commons/a.tar", "digest": digest, "size": "1Gi", "public": True}
    )
    return plan(aws.model_copy(update={"storage": storage, "datasets": (pile, commons)}), rendered)


def test_the_role_of_staging_jobs_may_read_only_their_sources(staged: Plan) -> None:
    association = staged.named("PodIdentityAssociation")["training-trainyard-storage-default"]
    assert (association["namespace"], association["serviceAccount"]) == ("trainyard-storage", "default")
    lists, reads = json.loads(staged.named("RolePolicy")["training-datasets"]["policy"])["Statement"]
    assert (reads["Action"], reads["Resource"]) == (["s3:GetObject"], "arn:aws:s3:::example-data/pile/*")
    assert lists["Condition"] == {"StringLike": {"s3:prefix": ["pile/", "pile/*"]}}
    assert lists["Resource"] == "arn:aws:s3:::example-data"


def test_teams_share_the_datasets_by_volumes_with_different_handles(staged: Plan) -> None:
    volumes = [
        each["spec"]["csi"]
        for each in staged.named("PersistentVolume").values()
        if each["spec"]["claimRef"]["name"] == "datasets"
    ]
    assert len(volumes) == 2
    assert {each["volumeAttributes"]["mountname"] for each in volumes} == {"abcdefgh/datasets"}
    assert len({each["volumeHandle"] for each in volumes}) == 2


USER, ROLE = "arn:aws:iam::123456789012:user/mei", "arn:aws:iam::123456789012:role/on-call"


@pytest.fixture(scope="module")
def with_break_glass(aws: Stack, rendered: Path) -> Plan:
    assert isinstance(aws.target, AwsSpec)
    access = aws.target.access.model_copy(update={"break_glass": (USER, ROLE)})
    return cluster_plan(with_provider(aws, access=access), rendered)


def test_the_break_glass_role_lasts_an_hour_and_requires_mfa_of_users(with_break_glass: Plan) -> None:
    role = with_break_glass.named("Role")["training-break-glass"]
    assert role["maxSessionDuration"] == 3600
    user, other = json.loads(role["assumeRolePolicy"])["Statement"]
    assert (user["Principal"], other["Principal"]) == ({"AWS": [USER]}, {"AWS": [ROLE]})
    assert user["Condition"] == {"Bool": {"aws:MultiFactorAuthPresent": "true"}}
    assert "Condition" not in other


def test_the_break_glass_role_has_an_access_entry_and_no_logs(with_break_glass: Plan, aws_plan: Plan) -> None:
    entry = with_break_glass.named("AccessEntry")["training-break-glass"]
    association = with_break_glass.named("AccessPolicyAssociation")["training-break-glass"]
    assert entry["principalArn"] == association["principalArn"] == "arn:Role/training-break-glass"
    assert association["policyArn"].endswith("/AmazonEKSClusterAdminPolicy")
    (may,) = json.loads(with_break_glass.named("RolePolicy")["training-break-glass"]["policy"])["Statement"]
    assert may["Action"] == ["eks:DescribeCluster"]
    assert "training-break-glass" not in aws_plan.named("Role")
    assert findings("aws", with_break_glass) == []


def test_each_call_of_the_break_glass_role_is_counted_from_the_audit_log(with_break_glass: Plan) -> None:
    assert "audit" in with_break_glass.named("Cluster")["training"]["enabledClusterLogTypes"]
    found = with_break_glass.named("LogMetricFilter")["training-break-glass"]
    (logs,) = (
        each
        for each in with_break_glass.named("LogGroup").values()
        if each["name"] == "/aws/eks/training/cluster"
    )
    assert found["logGroupName"] == logs["name"]
    assert "assumed-role/training-break-glass/" in found["pattern"]
