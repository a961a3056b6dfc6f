"""The resource `NodeGroupSize` on moto: it requests a node group's nodes and does not wait for them."""

from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from moto import mock_aws

from engine.provider import node_group_size
from engine.provider.node_group_size import NodeGroupSize
from engine.provider.resource import Failure, ResourceNotFound
from infra.errors import TrainyardError
from tests.engine.progress import RecordedProgress

pytestmark = pytest.mark.clouds

SIZES = {"minSize": 0, "size": 4, "labels": {"trainyard.dev/pool": "spot"}}
INPUTS = {"region": "us-east-2", "cluster": "training", "nodeGroup": "spot", **SIZES}
GROUP = {"clusterName": "training", "nodegroupName": "spot"}


@pytest.fixture
def eks(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client: Any = boto3.client("eks", region_name="us-east-2")
        role = "arn:aws:iam::123456789012:role/nodes"
        client.create_cluster(name="training", roleArn=role, resourcesVpcConfig={"subnetIds": ["subnet-1"]})
        sizes = {"minSize": 0, "desiredSize": 0, "maxSize": 2}
        client.create_nodegroup(**GROUP, nodeRole=role, subnets=["subnet-1"], scalingConfig=sizes)
        yield client


def sizes_of(eks: Any) -> dict[str, int]:
    found: dict[str, int] = eks.describe_nodegroup(**GROUP)["nodegroup"]["scalingConfig"]
    return found


def test_an_empty_group_is_resized_and_can_be_resized_again(eks: Any) -> None:
    resource = NodeGroupSize()
    assert resource.create(INPUTS, RecordedProgress()) == {}
    assert sizes_of(eks) == {"minSize": 0, "desiredSize": 4, "maxSize": 4}
    resource.update(INPUTS, {**INPUTS, "minSize": 2, "size": 2}, RecordedProgress())
    assert sizes_of(eks) == {"minSize": 2, "desiredSize": 2, "maxSize": 2}


def test_the_number_of_existing_nodes_is_no_drift(eks: Any) -> None:
    assert NodeGroupSize().read(INPUTS, {}, RecordedProgress()).inputs == INPUTS
    eks.delete_nodegroup(**GROUP)
    with pytest.raises(ResourceNotFound):
        NodeGroupSize().read(INPUTS, {}, RecordedProgress())
    NodeGroupSize().delete(INPUTS, RecordedProgress())


def test_another_update_is_awaited_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    class Busy:
        def update_nodegroup_config(self, **_: Any) -> None:
            asked.append("update")
            if asked == ["update"]:
                raise ClientError({"Error": {"Code": "ResourceInUseException", "Message": ""}}, "Update")

        def get_waiter(self, name: str) -> Any:
            asked.append(name)
            return self

        def wait(self, **_: Any) -> None: ...

    monkeypatch.setattr(node_group_size, "_eks", lambda _inputs: Busy())
    NodeGroupSize().create(INPUTS, RecordedProgress())
    assert asked == ["update", "nodegroup_active", "update"]


def test_a_refusal_of_eks_is_a_problem_with_a_next_step(eks: Any) -> None:
    with pytest.raises(TrainyardError, match="aws eks describe-nodegroup") as raised:
        NodeGroupSize().create({**INPUTS, "nodeGroup": "gone"}, RecordedProgress())
    assert "ResourceNotFoundException" in raised.value.problems[0].got


@pytest.mark.parametrize(
    ("inputs", "wrong"),
    [
        (INPUTS, []),
        ({**INPUTS, "size": "4"}, ["size"]),
        ({**INPUTS, "more": 1}, ["more"]),
        ({}, ["region", "cluster", "nodeGroup", "minSize", "size"]),
    ],
)
def test_inputs_are_checked(inputs: dict[str, Any], wrong: list[str]) -> None:
    found: list[Failure] = NodeGroupSize().check(inputs)
    assert [each.property for each in found] == wrong
