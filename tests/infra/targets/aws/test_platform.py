"""The platform's Kubernetes objects on AWS: pods, queues, device plugins, volumes and access."""

import json
from pathlib import Path

import pytest

from infra.stackfile import Stack
from infra.stackfile.dataset import DatasetSpec
from infra.stackfile.storage import CheckpointsSpec
from infra.targets.aws.stackfile.target import AwsSpec
from tests.infra.evaluated import findings
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan, plan
from tests.infra.shown import blocks_of
from tests.infra.targets.aws.test_plan_of_aws import with_provider


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


def test_the_break_glass_role_is_the_golden_one(with_break_glass: Plan) -> None:
    """It lasts an hour, users need MFA for it, and its calls are counted from the audit log."""
    assert_golden(
        blocks_of(with_break_glass, "training-break-glass", "LogGroup", "Cluster"), "break-glass-aws"
    )
    assert findings("aws", with_break_glass) == []
