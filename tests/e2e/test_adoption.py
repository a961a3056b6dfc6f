"""Adoption of existing resources into a state, on the real engine, with moto as the account."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

import pytest
import yaml

from engine.engine import Engine
from engine.paths import Paths
from engine.recovery import Found, Unfinished
from infra.common.artifacts import ROOT
from infra.targets.aws.account.find import AwsFinder
from rehearsal.aws.account import MotoAccount
from rehearsal.aws.client import clients
from rehearsal.fake_provider import FakeProvider
from rehearsal.rehearse import ANY_VERSION
from tests.engine.progress import RecordedProgress
from trainyard.stack.session import Session

pytestmark = pytest.mark.engine

REGION = "us-east-2"
PROGRAM = """
import pulumi

cluster = pulumi.ComponentResource("trainyard:infra:Cluster", "mine")
tags = '{"tags": {"trainyard.dev/stack": "mine"}}'
provider = pulumi.ProviderResource(
    "aws", "mine", {"region": "us-east-2", "defaultTags": tags}, pulumi.ResourceOptions(parent=cluster)
)

class Made(pulumi.CustomResource):
    def __init__(self, kind, name, inputs, retain=False):
        options = pulumi.ResourceOptions(parent=cluster, provider=provider, retain_on_delete=retain)
        super().__init__(kind, name, inputs, options)

vpc = Made("aws:ec2/vpc:Vpc", "mine-vpc", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "mine"}})
zone = {"availabilityZone": "us-east-2a", "cidrBlock": "10.0.0.0/24", "vpcId": vpc.id}
subnet = Made("aws:ec2/subnet:Subnet", "mine-a", zone)
group = Made("aws:ec2/securityGroup:SecurityGroup", "mine-nodes", {"description": "nodes", "vpcId": vpc.id})
role = Made("aws:iam/role:Role", "mine-node", {"assumeRolePolicy": "{}", "name": None})
policy = {"role": role.name, "policyArn": "arn:aws:iam::aws:policy/AmazonEKSWorkerNodePolicy"}
Made("aws:iam/rolePolicyAttachment:RolePolicyAttachment", "mine-node", policy)
key = Made("aws:kms/key:Key", "mine-key", {"description": "mine: data", "policy": "{}"}, retain=True)
bucket = {"bucket": "mine-checkpoints", "region": "us-east-2"}
Made("aws:s3/bucket:Bucket", "mine-bucket", bucket, retain=True)
"""
MADE = 7
RETAINED = {"aws:s3/bucket:Bucket", "aws:kms/key:Key"}
GROUPING = 3
"""Number of resources that only group others: the stack, the component and the provider."""


@dataclass(frozen=True)
class AdoptionProject:
    """A separate project, on which each engine has a separate state."""

    folder: Path
    environment: Mapping[str, str]
    fake_provider: FakeProvider

    def engine(self, state: str) -> Engine:
        paths = replace(Paths.from_environment(), repository=self.folder, state=self.folder / state)
        paths = replace(paths, stacks_folder=self.folder / "stacks")
        paths.engine.mkdir(parents=True, exist_ok=True)
        return Engine(paths, {**self.environment, "PULUMI_BACKEND_URL": paths.engine.as_uri()}, self.find)

    def find(self, unfinished: Unfinished) -> Found | None:
        finder = AwsFinder("mine", REGION, "123456789012", clients(REGION, self.folder / "made"))
        found = finder.find_announced(unfinished.token, unfinished.name, unfinished.inputs)
        return Found(*found) if found else None


@pytest.fixture
def project(tmp_path: Path) -> Iterator[AdoptionProject]:
    folder = tmp_path / "project"
    (folder / "stacks").mkdir(parents=True)
    (folder / "stacks" / "Pulumi.mine.yaml").write_text("config: {}\n")
    runtime = {"name": "python", "options": {"virtualenv": str(ROOT / ".venv")}}
    settings = {"name": "adoption", "runtime": runtime, "stackConfigDir": "stacks"}
    (folder / "Pulumi.yaml").write_text(yaml.safe_dump(settings))
    (folder / "__main__.py").write_text(PROGRAM)
    (folder / ".trainyard").symlink_to(ROOT / ".trainyard")
    tools = Session("mine", replace(Paths.from_environment(), state=tmp_path / "tools"))
    with MotoAccount(REGION) as account, FakeProvider(["aws"], ANY_VERSION, cloud=account) as fake_provider:
        yield AdoptionProject(
            folder, {**tools.toolchain.environment(), **fake_provider.environment()}, fake_provider
        )


@pytest.fixture
def progress() -> RecordedProgress:
    return RecordedProgress()


def test_retained_resources_of_a_destroyed_stack_are_adopted_and_not_created_again(
    project: AdoptionProject, progress: RecordedProgress
) -> None:
    engine = project.engine("state")
    assert engine.adopt("mine", progress).changes == {"adopt": 0}
    assert engine.up("mine", progress).changes["create"] == MADE + GROUPING
    engine.destroy("mine", progress)
    assert engine.adopt("mine", progress).changes == {"adopt": 2}
    assert {line.split()[1] for line in progress.lines if line.startswith("adopted")} == RETAINED
    again = engine.up("mine", progress)
    assert again.changes["create"] == MADE - 2
    assert again.changes["same"] == 2 + GROUPING
    assert len(list(project.fake_provider.store)) == MADE


def test_a_lost_state_is_rebuilt_from_existing_resources(
    project: AdoptionProject, progress: RecordedProgress, compare: Callable[[Engine], dict[str, str]]
) -> None:
    before = project.engine("lost")
    before.up("mine", progress)
    rebuilt = project.engine("rebuilt")
    assert rebuilt.adopt("mine", progress).changes == {"adopt": MADE}
    assert compare(rebuilt) == compare(before)
    assert rebuilt.up("mine", progress).changes == {"same": MADE + GROUPING}


@pytest.fixture
def compare() -> Callable[[Engine], dict[str, str]]:
    """Return a function for the IDs of a state's resources, without providers, whose IDs are generated."""
    return lambda engine: {
        each["urn"]: each["id"]
        for each in engine.resources("mine")
        if each.get("id") and ":providers:" not in each["urn"]
    }
