"""The IAM role of a pipeline: it allows every call of the stack's rehearsal, and refuses attacks."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import botocore.session
import pytest
import yaml

from infra.errors import InputError
from infra.stackfile import Stack, load
from infra.targets.aws.account import rights
from infra.targets.aws.cluster.scope import tags_of
from infra.targets.aws.stackfile.target import AwsSpec
from infra.targets.deploying import DeclaredResource, DeployRole, Pipeline
from rehearsal.aws.account import ACCOUNT
from rehearsal.aws.lifecycles import kind, life
from rehearsal.cloud import RefusedError
from tests.infra.golden import GOLDEN, assert_matches
from tests.infra.plan import Plan, cluster_plan, stack_file
from tests.infra.targets.aws.calls import REGION, S3, GuardedAccount
from tests.infra.targets.aws.iam import IamCall, is_allowed
from tests.infra.targets.aws.test_moto import Lifecycle, in_order
from tests.infra.targets.aws.test_plan_of_aws import with_provider

pytestmark = pytest.mark.clouds

PIPELINE = Pipeline("github", "team/research", stack="dev")
BOUNDARY = f"arn:aws:iam::{ACCOUNT}:policy/boundary"
PREVIEW = Pipeline("github", "team/research", read_only=True, stack="dev")
MOVING = Pipeline("github", "team/research", stack="dev", ids="123/456")


def role_of(stack: Stack, plan: Plan, pipeline: Pipeline = PIPELINE) -> DeployRole:
    declared = [DeclaredResource(each.type, each.name, each.inputs) for each in plan.resources]
    return rights.deploy_role(stack, cast(AwsSpec, stack.target), declared, pipeline)


@dataclass(frozen=True)
class StackWithRole:
    """A stack, its plan, and the role that is generated for it."""

    stack: Stack
    plan: Plan
    role: DeployRole

    @property
    def policies(self) -> list[Mapping[str, Any]]:
        return list(self.role.rights.values())


@pytest.fixture(scope="module")
def subjects(aws: Stack, rendered: Path) -> dict[str, StackWithRole]:
    """Both stacks, with all options: the queue of notices, the break-glass role, the permissions boundary."""
    assert isinstance(aws.target, AwsSpec)
    access = aws.target.access.model_copy(update={"break_glass": aws.target.access.admins})
    stacks = {
        "aws": with_provider(aws, interruption_queue=True, access=access, permissions_boundary=BOUNDARY),
        "aws-dev": load(stack_file("aws-dev")),
    }
    plans = {name: cluster_plan(stack, rendered) for name, stack in stacks.items()}
    return {
        name: StackWithRole(stacks[name], plan, role_of(stacks[name], plan)) for name, plan in plans.items()
    }


RETAINED = {"DefaultSecurityGroup", "BucketVersioning"}
"""A VPC's default group is deleted with the VPC, and versioning is suspended, never removed."""

ADDS = {"Schedule", "LogMetricFilter"}
"""Types whose update is their creation's request, by which moto adds another one."""


def test_every_call_of_the_stacks_lifecycle_is_allowed(subjects: dict[str, StackWithRole]) -> None:
    lacks: set[str] = set()
    for subject in subjects.values():
        stack = subject.stack
        tags = tags_of(stack.name, cast(AwsSpec, stack.target))
        account = GuardedAccount(stack.name, tags, subject.policies)
        with account:
            lifecycle_of = Lifecycle(account)
            for registered in in_order(subject.plan):
                lifecycle_of.create(registered)
            for resource in lifecycle_of.made:
                assert account.exists(resource), resource
                if "update" in life(resource.token) and kind(resource.token) not in ADDS:
                    account.update(resource, resource.inputs)
            for resource in reversed(lifecycle_of.made):
                account.delete(resource)
            left = {kind(each.token) for each in lifecycle_of.made if account.exists(each)}
        assert left - set(map(kind, account.lacks)) <= RETAINED
        assert len(account.asked) > 80
        lacks |= account.lacks
    assert_matches(yaml.safe_dump({"moto lacks": sorted(lacks)}), GOLDEN / "moto.yaml")


def test_without_one_right_the_stack_is_refused(subjects: dict[str, StackWithRole]) -> None:
    """Shows that the test above evaluates the calls."""
    subject = subjects["aws-dev"]
    tags = tags_of(subject.stack.name, cast(AwsSpec, subject.stack.target))
    text = json.dumps(subject.policies).replace('"ec2:CreateSubnet"', '"ec2:CreateNothing"')
    with GuardedAccount(subject.stack.name, tags, json.loads(text)) as account:
        lifecycle_of = Lifecycle(account)
        with pytest.raises(RefusedError, match=r"AccessDenied: .*ec2:CreateSubnet"):
            for registered in in_order(subject.plan):
                lifecycle_of.create(registered)


NODE = f"arn:aws:iam::{ACCOUNT}:role/training-node"
BOUND = {"iam:PermissionsBoundary": BOUNDARY}
WIDER = {"iam:PermissionsBoundary": "arn:aws:iam::aws:policy/AdministratorAccess"}
JOIN = {"iam:PolicyARN": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"}
REFUSED = [IamCall(*each) for each in yaml.safe_load(Path(__file__).with_name("refused.yaml").read_text())]


@pytest.mark.parametrize(
    "asked", REFUSED, ids=[f"{index}-{each.action}" for index, each in enumerate(REFUSED)]
)
def test_what_a_stack_does_not_do_is_refused(asked: IamCall, subjects: dict[str, StackWithRole]) -> None:
    assert not is_allowed(asked, subjects["aws"].policies)


def test_roles_are_made_and_get_policies_only_with_the_boundary(subjects: dict[str, StackWithRole]) -> None:
    bounded, unbounded = subjects["aws"], subjects["aws-dev"]
    roles = bounded.plan.named("Role").values()
    assert {each["permissionsBoundary"] for each in roles} == {BOUNDARY}
    for action in ("CreateRole", "PutRolePolicy", "DeleteRolePolicy", "PutRolePermissionsBoundary"):
        assert is_allowed(IamCall(f"iam:{action}", NODE, BOUND), bounded.policies)
    assert is_allowed(IamCall("iam:AttachRolePolicy", NODE, JOIN | BOUND), bounded.policies)
    assert not [note for note in bounded.role.notes if "permissions_boundary" in note]
    assert [note for note in unbounded.role.notes if "permissions_boundary" in note]
    of_dev = NODE.replace("training-", f"{unbounded.stack.name}-")
    assert is_allowed(IamCall("iam:CreateRole", of_dev), unbounded.policies)
    assert not is_allowed(IamCall("iam:PutRolePermissionsBoundary", of_dev, WIDER), unbounded.policies)


def test_the_role_of_previews_changes_nothing(subjects: dict[str, StackWithRole]) -> None:
    subject = subjects["aws"]
    policies = role_of(subject.stack, subject.plan, PREVIEW).rights
    actions = {
        action
        for policy in policies.values()
        for statement in policy["Statement"]
        for action in statement["Action"]
    }
    assert actions
    assert {each.partition(":")[2].startswith(("Describe", "Get", "List")) for each in actions} == {True}


def test_no_statement_has_a_wildcard_action_and_each_policy_fits(subjects: dict[str, StackWithRole]) -> None:
    for subject in subjects.values():
        for policy in subject.policies:
            assert len(json.dumps(policy, separators=(",", ":"))) <= rights.MAX_POLICY_CHARACTERS
            for statement in policy["Statement"]:
                assert not [each for each in statement["Action"] if "*" in each]
                assert statement["Resource"] != ["*"] or statement["Sid"].startswith(
                    ("Look", "Make", "Launch")
                )
        assert len(subject.policies) <= 10, "policies that one role takes"


SERVICES = {"autoscaling", "backup", "ec2", "efs", "eks", "events", "fsx", "iam", "kms", "logs", "s3", "sqs"}


def test_the_table_names_types_that_stacks_make_and_operations_that_aws_has() -> None:
    session = botocore.session.get_session()
    actions = {f"s3:{name}" for name in S3.values()} | SPECIAL
    for service in SERVICES:
        prefix = {"efs": "elasticfilesystem"}.get(service, service)
        actions |= {f"{prefix}:{name}" for name in session.get_service_model(service).operation_names}
    for name, given in rights.table()["types"].items():
        assert name == "NodeGroupSize" or life(f"aws:x:{name}")
        operations = {
            f"{_service(target)}:{each}"
            for section in rights._SECTIONS
            for target, found in given.get(section, {}).items()
            for each in found
        }
        assert operations | set(given.get("look", ())) <= actions, name


SPECIAL = {
    "backup-storage:MountCapsule", "s3:GetBucketCORS", "s3:GetAccelerateConfiguration",
    "s3:GetBucketObjectLockConfiguration", "s3:GetReplicationConfiguration",
    "s3:ListTagsForResource", "s3:TagResource", "s3:UntagResource",
}  # fmt: skip
"""Actions that have no operation of the same name (Service Authorization Reference)."""


def _service(target: str) -> str:
    found = str(rights.table()["arns"][target])
    return "kms" if found == "*" else found.split(":")[2]


@pytest.mark.parametrize(
    ("pipeline", "trusted"),
    [
        (PIPELINE, "repo:team/research:environment:dev-production"),
        (PREVIEW, "repo:team/research:environment:dev-preview repo:team/research:environment:dev-read"),
        (
            MOVING,
            "repo:team/research:environment:dev-production"
            " repo:team@123/research@456:environment:dev-production",
        ),
        (Pipeline("gitlab", "a/ml/b", stack="dev"), "project_path:a/ml/b:ref_type:branch:ref:main"),
        (
            Pipeline("gitlab", "team/research", read_only=True, stack="dev"),
            "project_path:team/research:ref_type:branch:ref:*",
        ),
    ],
    ids=["github", "github's previews", "github with ids", "gitlab", "gitlab's previews"],
)
def test_the_role_trusts_one_project_and_its_branch_or_environment(
    pipeline: Pipeline, trusted: str, subjects: dict[str, StackWithRole]
) -> None:
    spec = cast(AwsSpec, subjects["aws"].stack.target)
    (statement,) = rights.trust(spec, "aws", pipeline)["Statement"]
    issuer = pipeline.issuer
    assert statement["Principal"] == {"Federated": f"arn:aws:iam::{ACCOUNT}:oidc-provider/{issuer}"}
    conditions = {key: value for each in statement["Condition"].values() for key, value in each.items()}
    assert conditions == {f"{issuer}:aud": "sts.amazonaws.com", f"{issuer}:sub": trusted.split()}
    assert ("StringLike" in statement["Condition"]) == ("*" in trusted)


def test_a_pattern_for_a_project_is_refused() -> None:
    with pytest.raises(InputError, match="would admit other projects"):
        Pipeline("github", "team/*", stack="dev")
    with pytest.raises(InputError, match="gh api repos/team/research"):
        Pipeline("github", "team/research", stack="dev", ids="team/research")


def test_region_of_the_calls_is_the_stacks(subjects: dict[str, StackWithRole]) -> None:
    assert {cast(AwsSpec, each.stack.target).region for each in subjects.values()} == {REGION}
