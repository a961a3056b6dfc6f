"""Node groups of pools: every AWS machine of the catalogue, in each capacity type."""

import base64
from collections.abc import Mapping
from datetime import datetime
from email import message_from_bytes
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import catalog
from catalog import Machine
from infra.stackfile import Stack
from infra.stackfile.node_pool import NodePoolSpec
from infra.targets.aws.cluster import filling
from infra.targets.aws.cluster.scope import tag_value
from infra.targets.aws.stackfile.target import AwsSpec, LustreSpec
from tests.infra.golden import assert_golden
from tests.infra.plan import Plan, cluster_plan
from tests.infra.shown import blocks_of
from tests.tables import table

ZONE = "us-east-2b"
MACHINES = catalog.machines(cloud="aws")
BLOCK = {
    "id": "cr-0123456789abcdef0",
    "kind": "block",
    "starts": "2030-01-07T11:30:00Z",
    "ends": "2030-01-14T11:30:00Z",
}


@pytest.fixture(scope="module")
def all_machines(aws: Stack, rendered: Path) -> Plan:
    """A plan with an on-demand pool of each machine, whether the region offers it or not."""
    pools = [_pool(machine.name, name=_name(machine)) for machine in MACHINES]
    return cluster_plan(_with_pools(aws, pools), rendered)


@pytest.fixture(scope="module")
def bought(aws: Stack, rendered: Path) -> Plan:
    pools = [
        _pool("p5.48xlarge", name="spot", capacity="spot"),
        _pool(
            "p5.48xlarge",
            name="targeted",
            capacity="reserved",
            reservation={"id": "cr-0123456789abcdef1", "kind": "targeted"},
        ),
        _pool("p5.48xlarge", name="block", capacity="reserved", reservation=BLOCK),
    ]
    return cluster_plan(_with_pools(aws, pools), rendered)


def _pool(machine: str, **fields: Any) -> NodePoolSpec:
    usual = {"capacity": "on-demand", "nodes": 2, "machine": machine, "zones": (ZONE,)}
    return NodePoolSpec.model_validate({**usual, **fields})


def _with_pools(stack: Stack, pools: list[NodePoolSpec]) -> Stack:
    return stack.model_copy(update={"pools": (stack.pool("system"), *pools), "queues": (), "teams": ()})


def _name(machine: Machine) -> str:
    return machine.name.replace(".", "-")


@pytest.mark.parametrize("machine", MACHINES, ids=_name)
def test_the_layout_of_interfaces_is_valid_for_ec2(machine: Machine, all_machines: Plan) -> None:
    template = all_machines.named("LaunchTemplate")[f"training-{_name(machine)}"]
    interfaces = template.get("networkInterfaces", [])
    if machine.efa is None:
        assert not interfaces
        assert template["vpcSecurityGroupIds"] == ["ClusterGroup/training"]
        return
    places = [(each["networkCardIndex"], each["deviceIndex"]) for each in interfaces]
    assert places[0] == (0, 0)
    assert "interfaceType" not in interfaces[0]
    assert len(set(places)) == len(places)
    fast = [each for each in interfaces if each.get("interfaceType") == "efa-only"]
    assert len(fast) == len(interfaces) - 1 == machine.efa.interfaces
    assert all(device == (1 if card == 0 else 0) for card, device in places[1:])
    assert all(card < machine.efa.network_cards for card, _ in places)
    assert all(
        each["securityGroups"] == ["ClusterGroup/training", "SecurityGroup/training-efa"]
        for each in interfaces
    )
    assert not any("subnetId" in each for each in interfaces)
    assert "vpcSecurityGroupIds" not in template


@pytest.mark.parametrize("machine", MACHINES, ids=_name)
def test_local_disks_are_joined_into_one(machine: Machine, all_machines: Plan) -> None:
    template = all_machines.named("LaunchTemplate")[f"training-{_name(machine)}"]
    parts = _parts(template)
    raid = [text for kind, text in parts if kind == "application/node.eks.aws"]
    assert bool(raid) == bool(machine.local_nvme_gib)
    assert all('"strategy": "RAID0"' in text for text in raid)
    lnet = [text for kind, text in parts if kind == "text/x-shellscript"]
    assert bool(lnet) == (machine.efa is not None)


@pytest.mark.parametrize("machine", MACHINES, ids=_name)
def test_the_image_has_the_drivers_that_the_machine_needs(machine: Machine, all_machines: Plan) -> None:
    ami = all_machines.named("NodeGroup")[f"training-{_name(machine)}"]["amiType"]
    architecture = "ARM_64" if machine.architecture == "arm64" else "x86_64"
    assert ami == f"AL2023_{architecture}_{'NVIDIA' if machine.accelerator else 'STANDARD'}"


def test_every_node_needs_a_session_for_its_metadata_and_has_an_encrypted_disk(all_machines: Plan) -> None:
    for template in all_machines.named("LaunchTemplate").values():
        assert template["metadataOptions"]["httpTokens"] == "required"
        (disk,) = template["blockDeviceMappings"]
        assert disk["ebs"]["encrypted"] == "true"
        assert disk["ebs"]["kmsKeyId"]


def test_tags_are_not_in_the_instance_metadata(all_machines: Plan) -> None:
    """With them EC2 refuses to launch an instance whose tags have `/` in their keys, as ours have."""
    for template in all_machines.named("LaunchTemplate").values():
        assert template["metadataOptions"]["instanceMetadataTags"] == "disabled"
        tagged = next(each for each in template["tagSpecifications"] if each["resourceType"] == "instance")
        assert any("/" in key for key in tagged["tags"])


def test_pools_of_each_capacity_type_are_the_golden_ones(bought: Plan) -> None:
    """Pools of jobs are created empty and resized: a group that does not get its nodes is CREATE_FAILED."""
    assert_golden(blocks_of(bought, "LaunchTemplate", "NodeGroup", "NodeGroupSize"), "pools-aws")


@pytest.mark.parametrize(("now", "actions", "size"), table(__file__))
def test_a_blocks_group_has_nodes_while_the_block_lasts(
    aws: Stack,
    rendered: Path,
    monkeypatch: pytest.MonkeyPatch,
    now: str,
    actions: dict[str, int],
    size: int | None,
) -> None:
    monkeypatch.setattr(filling, "_now", lambda: datetime.fromisoformat(f"{now}:00+00:00"))
    pool = _pool("p5.48xlarge", name="block", capacity="reserved", reservation=BLOCK)
    found = cluster_plan(_with_pools(aws, [pool]), rendered)
    assert found.named("NodeGroup")["training-block"]["scalingConfig"]["desiredSize"] == 0
    asked = found.named("NodeGroupSize").get("training-block", {})
    assert asked.get("size") == size
    scheduled = {name.split("-")[2]: each for name, each in found.named("Schedule").items()}
    assert {what: each["desiredCapacity"] for what, each in scheduled.items()} == actions
    moments = {"begin": "2030-01-07T11:30:00Z", "end": "2030-01-14T10:45:00Z"}
    assert all(each["startTime"] == moments[what] for what, each in scheduled.items())


@pytest.mark.parametrize(
    ("reason", "tag"),
    [
        ("agreed with finance (ticket #12), until May!", "agreed with finance ticket 12 until May"),
        ("the other zone's empty;\nask again in June", "the other zones empty ask again in June"),
        ("mit Einkauf geklärt: 5 % günstiger", "mit Einkauf geklärt: 5 günstiger"),
        ("x" * 300, "x" * 256),
    ],
)
def test_a_reason_becomes_a_valid_tag(aws: Stack, rendered: Path, reason: str, tag: str) -> None:
    pool = _pool("p5.48xlarge", name="spot", capacity="spot", spot_waiver=reason)
    found = cluster_plan(_with_pools(aws, [pool]), rendered)
    group = found.named("NodeGroup")[f"training-spot-p5-48xlarge-{ZONE}"]
    assert group["tags"]["trainyard.dev/spot-waiver"] == tag
    assert found.named("AwsCluster")["training"]["stack"]["pools"][1]["spot_waiver"] == reason


@given(st.text(min_size=1, max_size=400))
def test_any_text_becomes_a_tag_value(text: str) -> None:
    value = tag_value(text)
    assert len(value) <= 256
    assert all(each.isalnum() or each in " _.:/=+-@" for each in value)
    assert value == value.strip()


def test_every_tag_of_a_node_group_is_one_that_aws_takes(aws_plan: Plan) -> None:
    values = [text for each in aws_plan.named("NodeGroup").values() for text in each.get("tags", {}).values()]
    assert values
    assert values == [tag_value(text) for text in values]


def test_nodes_with_lustre_over_tcp_run_no_script(aws: Stack, rendered: Path) -> None:
    provider = aws.target
    assert isinstance(provider, AwsSpec)
    assert isinstance(provider.filesystem, LustreSpec)
    over_tcp = provider.filesystem.model_copy(update={"efa": False})
    stack = aws.model_copy(update={"target": provider.model_copy(update={"filesystem": over_tcp})})
    templates = cluster_plan(stack, rendered).named("LaunchTemplate").values()
    kinds = {kind for template in templates for kind, _ in _parts(template)}
    assert kinds == {"application/node.eks.aws"}


def _parts(template: Mapping[str, Any]) -> list[tuple[str, str]]:
    if "userData" not in template:
        return []
    message = message_from_bytes(base64.b64decode(template["userData"]))
    return [(part.get_content_type(), str(part.get_payload())) for part in message.walk()][1:]
