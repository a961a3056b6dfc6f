"""Names that a cloud takes, whatever a stack, its pools and its teams are called.

A physical name is what the plan sets, or what the engine makes up where the plan sets none: the logical name,
`-` and seven random hexadecimal digits. Limits are the clouds' own
(rehearsal/limits.py), not read from the code that makes names.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra import names
from infra.errors import InputError
from infra.spec import parse
from infra.spec.source import STACK_KEY
from rehearsal.limits import LIMITS, MORE_LIMITS, Limit
from tests.infra.golden import CASES
from tests.infra.plan import Plan, Registration, cluster_plan, plan, stack_file

pytestmark = pytest.mark.clouds

RANDOM = "-0a1b2c3"
"""What the engine adds (pulumi-terraform-bridge, AutoName; pulumi-azure-native does the same with eight)."""
LONGEST = 40
"""Longest name of a spec (`Name`)."""
STACKS = [
    *((stack_file("aws"), length) for length in (1, 18, 30, LONGEST)),
    *((stack_file(name), 1) for name in ("aws-dev", "gcp", "gcp-tpu", "azure")),
    *((stack_file(name), LONGEST) for name in ("aws-dev", "gcp", "gcp-tpu", "azure")),
    *((stack_file("coreweave"), length) for length in (1, 30)),
    *(
        (CASES / f"{case}.yaml", LONGEST)
        for case in ("autoscaled/aws", "efa-claims/aws", "racks/gcp", "existing-cluster/gcp")
    ),
]
"""Files, each with lengths of the stack's name: pools and teams always have the longest."""


UNNAMED = frozenset(
    {
        # They are known by an ID that the cloud makes up, or by what they belong to.
        *("DefaultSecurityGroup", "Eip", "FlowLog", "InternetGateway", "NatGateway", "Route", "RouteTable"),
        *("RouteTableAssociation", "SecurityGroupIngressRule", "Subnet", "Vpc", "VpcEndpoint", "Key"),
        *(
            "MountTarget",
            "DataRepositoryAssociation",
            "LustreFileSystem",
            "QueuePolicy",
            "EventTarget",
            "Tag",
            "AgentPoolSize",
            "NodeGroupSize",
            "NodePoolSize",
        ),
        *(
            "AccessEntry",
            "AccessPolicyAssociation",
            "Addon",
            "PodIdentityAssociation",
            "RolePolicyAttachment",
        ),
        *("BucketLifecycleConfiguration", "BucketPolicy", "BucketPublicAccessBlock", "BucketVersioning"),
        *("BucketServerSideEncryptionConfiguration", "BucketIAMMember", "CryptoKeyIAMMember", "IAMMember"),
        *("ManagedFolderIamMember", "Connection", "RoleAssignment", "RoleDefinition"),
        *("BlobServiceProperties", "ManagementPolicy", "MaintenanceConfiguration", "AdminRuleCollection"),
        *("ObjectStorageBucketLifecycleConfiguration", "ObjectStorageBucketSettings"),
        "ObjectStorageBucketVersioning",
    }
)
OURS = ("kubernetes:", "pulumi:", "trainyard:")


def long_name(stem: str, length: int) -> str:
    return (stem + "-" + "x" * length)[:length]


def renamed(file: Path, length: int) -> dict[str, Any]:
    """A stack file's data with a name of so many characters, and pools and teams with the longest ones."""
    data: dict[str, Any] = copy.deepcopy(yaml.safe_load(file.read_text())["config"][STACK_KEY])
    data["name"] = long_name("stack", length)
    pools = {pool["name"]: long_name(pool["name"], LONGEST) for pool in data["pools"]}
    teams = {team["name"]: long_name(team["name"], LONGEST) for team in data["teams"]}
    for section, known in (("pools", pools), ("teams", teams)):
        for entry in data[section]:
            entry["name"] = known[entry["name"]]
    for queue in data["queues"]:
        for flavor in queue["flavors"]:
            flavor["pool"] = pools[flavor["pool"]]
    if data.get("job"):
        data["job"]["team"] = teams[data["job"]["team"]]
    return data


def names_of(each: Registration) -> Iterator[tuple[Limit, str]]:
    """Physical names of a resource, each with what its cloud takes."""
    limit = LIMITS[each.type]
    yield limit, each.inputs.get(limit.field) or f"{each.name}{RANDOM}"
    for more in MORE_LIMITS.get(each.type, ()):
        yield more, each.inputs[more.field]


def refused_names(found: Plan) -> list[str]:
    """Report which names a cloud would refuse."""
    refused = []
    for each in found.resources:
        if each.type.startswith(OURS):
            continue
        if each.type not in LIMITS:
            assert each.type.rpartition(":")[2] in UNNAMED, f"{each.type} has no limit here"
            continue
        for limit, name in names_of(each):
            if not limit.takes(name):
                refused.append(f"{each.urn}: {limit.field} {name} ({len(name)}, at most {limit.longest})")
    return refused


@pytest.mark.parametrize(("file", "length"), STACKS, ids=lambda each: str(getattr(each, "stem", each)))
def test_a_cloud_takes_every_name_of_a_stack(file: Path, length: int, rendered: Path) -> None:
    assert not refused_names(cluster_plan(parse(renamed(file, length)), rendered))


def test_the_spec_refuses_a_name_that_coreweave_would_with_what_is_allowed() -> None:
    with pytest.raises(InputError) as refused:
        parse(renamed(stack_file("coreweave"), 31))
    (problem,) = refused.value.problems
    assert problem.path == "name"
    assert (problem.allowed, problem.fix) == ("at most 30 characters (CKS)", "shorten it by 1")


@pytest.mark.parametrize("name", ["aws", "azure"])
def test_kubernetes_takes_every_name_and_label_of_a_stack_with_long_names(name: str, rendered: Path) -> None:
    stack = parse(renamed(stack_file(name), LONGEST))
    labels_seen = 0
    for each in plan(stack, rendered).resources:
        metadata = each.inputs.get("metadata") if each.type.startswith("kubernetes:") else None
        if not metadata:
            continue
        kind = each.type.rpartition(":")[2]
        assert len(metadata["name"]) <= (63 if kind in {"Namespace", "Service", "Job"} else 253), each.urn
        for key, value in (metadata.get("labels") or {}).items():
            labels_seen += 1
            assert len(value) <= 63, f"{each.urn}: {key}"
    assert labels_seen > 100


@settings(max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.from_regex(r"[a-z]([a-z0-9-]{0,38}[a-z0-9])?", fullmatch=True))
def test_aws_takes_every_name_of_a_stack_with_any_name(aws_file: Path, rendered: Path, name: str) -> None:
    data = renamed(aws_file, LONGEST)
    assert not refused_names(cluster_plan(parse({**data, "name": name}), rendered))


@pytest.fixture(scope="session")
def aws_file() -> Path:
    return stack_file("aws-dev")


@given(st.from_regex(r"[a-z]([a-z0-9-]{0,120}[a-z0-9])?", fullmatch=True), st.sampled_from([50, 63, 64]))
def test_a_logical_name_leaves_room_for_what_the_engine_adds(name: str, longest: int) -> None:
    fitted = names.fit_generated(name, longest)
    assert len(fitted + RANDOM) <= longest
    assert (fitted == name) == (len(name + RANDOM) <= longest)


def test_names_that_fit_are_not_changed(rendered: Path) -> None:
    """An upgrade replaces no node group, role or vault of an existing stack."""
    found = cluster_plan(parse(yaml.safe_load(stack_file("aws").read_text())["config"][STACK_KEY]), rendered)
    groups = found.named("NodeGroup")
    assert {
        "training-system",
        "training-preprocessing",
        "training-spot-p5en-48xlarge-us-east-2b",
    } <= groups.keys()
    assert all("nodeGroupName" not in inputs for inputs in groups.values())
