"""The resources `NodePoolSize` (GKE) and `AgentPoolSize` (AKS) on fake APIs: they only request nodes."""

import inspect
import json
from typing import Any

import httpx
import pytest
from pulumi_azure_native.containerservice.agent_pool import AgentPool

from engine.provider import agent_pool_size
from engine.provider.agent_pool_size import AgentPoolSize
from engine.provider.group_size import GroupSize
from engine.provider.node_pool_size import NodePoolSize
from engine.provider.resource import ResourceHandler, ResourceNotFound
from infra.clients.azure import AzureClient
from infra.clients.gcp import GcpClient
from infra.errors import TrainyardError
from tests.engine.progress import RecordedProgress

pytestmark = pytest.mark.clouds

NODE_POOL = "projects/example/locations/us-central1/clusters/training/nodePools/spot"
AGENT_POOL = (
    "/subscriptions/s/resourceGroups/training/providers/Microsoft.ContainerService"
    "/managedClusters/training/agentPools/spot"
)
GCP = {"nodePool": NODE_POOL, "size": 6, "zones": 3, "labels": {"trainyard.dev/pool": "spot"}}
AZURE = {"agentPool": AGENT_POOL, "size": 4, "labels": {"trainyard.dev/pool": "spot"}}


class FakeGroupApis:
    """A fake of both APIs for one group, which records requests; the answers in `refusals` come first."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.refusals: list[tuple[int, str]] = []
        self.asked: list[tuple[str, Any]] = []
        self.there = True
        self.pool: dict[str, Any] = {"vmSize": "Standard_ND96isr_H100_v5", "count": 1, "minCount": 0}
        transport = httpx.MockTransport(self.answer)
        monkeypatch.setattr(GcpClient, "of_user", lambda: GcpClient("token", transport))
        monkeypatch.setattr(AzureClient, "of_user", lambda _subscription: AzureClient("token", transport))
        monkeypatch.setattr(GroupSize, "POLL_SECONDS", 0.0)

    def answer(self, request: httpx.Request) -> httpx.Response:
        if not self.there:
            return httpx.Response(404, json={"error": {"message": "not found"}})
        if request.method == "GET":
            return httpx.Response(200, json={"properties": self.pool})
        if self.refusals:
            status, message = self.refusals.pop(0)
            return httpx.Response(status, json={"error": {"message": message}})
        self.asked.append((str(request.url), json.loads(request.content)))
        return httpx.Response(201, json={"properties": {"provisioningState": "Updating"}})


@pytest.fixture
def cloud(monkeypatch: pytest.MonkeyPatch) -> FakeGroupApis:
    return FakeGroupApis(monkeypatch)


def test_a_node_pool_is_resized_to_the_nodes_of_each_zone(cloud: FakeGroupApis) -> None:
    assert NodePoolSize().create(GCP, RecordedProgress()) == {}
    NodePoolSize().update(GCP, {**GCP, "size": 12}, RecordedProgress())
    url = f"https://container.googleapis.com/v1/{NODE_POOL}:setSize"
    assert cloud.asked == [(url, {"nodeCount": 2}), (url, {"nodeCount": 4})]


def test_an_agent_pools_minimum_is_raised_and_other_properties_are_unchanged(cloud: FakeGroupApis) -> None:
    assert AgentPoolSize().create(AZURE, RecordedProgress()) == {}
    url = f"https://management.azure.com{AGENT_POOL}?api-version=2025-09-01"
    assert cloud.asked == [(url, {"properties": {**cloud.pool, "minCount": 4}})]


def test_the_api_version_of_agent_pools_is_the_sdks() -> None:
    assert f"REST API version {agent_pool_size.VERSION}." in inspect.getsource(AgentPool)


def test_missing_nodes_are_no_drift_but_another_minimum_is(cloud: FakeGroupApis) -> None:
    assert NodePoolSize().read(GCP, {}, RecordedProgress()).inputs == GCP
    cloud.pool["minCount"] = 4
    assert AgentPoolSize().read(AZURE, {}, RecordedProgress()).inputs == AZURE
    cloud.pool["minCount"] = 0
    assert AgentPoolSize().read(AZURE, {}, RecordedProgress()).inputs == {**AZURE, "size": 0}


@pytest.mark.parametrize(("kind", "inputs"), [(NodePoolSize, GCP), (AgentPoolSize, AZURE)])
def test_the_size_of_a_deleted_group_is_deleted(
    cloud: FakeGroupApis, kind: type[ResourceHandler], inputs: dict[str, Any]
) -> None:
    cloud.there = False
    with pytest.raises(ResourceNotFound):
        kind().read(inputs, {}, RecordedProgress())
    with pytest.raises(TrainyardError, match="404"):
        kind().create(inputs, RecordedProgress())
    kind().delete(inputs, RecordedProgress())


BUSY = [
    (NodePoolSize, GCP, 400, "Operation operation-1 is currently upgrading cluster training. Please wait."),
    (NodePoolSize, GCP, 400, "Cluster is running incompatible operation operation-1718024305921-fd4f65ea."),
    (NodePoolSize, GCP, 400, "Cluster is currently being created, deleted, updated or repaired."),
    (NodePoolSize, GCP, 429, "Too many operations: cluster hits the concurrent operations quota 5"),
    (AgentPoolSize, AZURE, 409, "Operation is not allowed: another operation (Scaling) is in progress"),
]


@pytest.mark.parametrize(("kind", "inputs", "status", "message"), BUSY)
def test_another_operation_is_awaited_first_for_a_time(
    monkeypatch: pytest.MonkeyPatch, cloud: FakeGroupApis, kind: Any, inputs: Any, status: int, message: str
) -> None:
    cloud.refusals = [(status, message)] * 2
    progress = RecordedProgress()
    kind().create(inputs, progress)
    assert progress.lines == ["spot: another operation is in progress"] * 2
    assert len(cloud.asked) == 1
    monkeypatch.setattr(kind, "BUSY_TIMEOUT_SECONDS", 0)
    cloud.refusals = [(status, message)]
    with pytest.raises(TrainyardError, match="run `up` again"):
        kind().create(inputs, progress)


@pytest.mark.parametrize(("kind", "inputs"), [(NodePoolSize, GCP), (AgentPoolSize, AZURE)])
def test_a_refusal_is_a_problem_with_a_next_step(
    cloud: FakeGroupApis, kind: type[ResourceHandler], inputs: dict[str, Any]
) -> None:
    cloud.refusals = [(403, "no permission")]
    with pytest.raises(TrainyardError, match="run `up` again") as raised:
        kind().create(inputs, RecordedProgress())
    assert raised.value.problems[0].got == "403: no permission"


def test_a_refusal_that_only_mentions_an_operation_is_final(cloud: FakeGroupApis) -> None:
    cloud.refusals = [(400, "This operation is not supported for node pools with flex-start.")]
    with pytest.raises(TrainyardError, match="400: This operation is not supported"):
        NodePoolSize().create(GCP, RecordedProgress())


@pytest.mark.parametrize(
    ("kind", "inputs", "wrong"),
    [
        (NodePoolSize, GCP, []),
        (NodePoolSize, {**GCP, "size": "4", "more": 1}, ["size", "more"]),
        (NodePoolSize, {}, ["nodePool", "size", "zones"]),
        (AgentPoolSize, AZURE, []),
        (AgentPoolSize, {**AZURE, "size": "4", "more": 1}, ["size", "more"]),
        (AgentPoolSize, {}, ["agentPool", "size"]),
    ],
)
def test_inputs_are_checked(kind: type[ResourceHandler], inputs: dict[str, Any], wrong: list[str]) -> None:
    assert [each.property for each in kind().check(inputs)] == wrong
