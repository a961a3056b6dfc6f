"""The resource `EmbeddedCluster` with a fake cluster: validation, reads, and the object store's keys."""

import stat
from pathlib import Path
from typing import Any

import pytest

from engine.provider.resource import ResourceNotFound
from local.cluster.cluster import ClusterInfo, ClusterStatus, NodeStatus
from local.cluster.config import ClusterConfig
from local.resources import embedded_cluster
from local.resources.embedded_cluster import EmbeddedCluster, object_store_keys
from tests.engine.progress import RecordedProgress

INPUTS: dict[str, Any] = {
    "name": "tiny",
    "kubernetesVersion": "1.35.4",
    "dataDir": "/data",
    "nodes": [{"name": "system-0", "pool": "system"}, {"name": "spot-0", "pool": "spot", "gpus": 2}],
}


class FakeCluster:
    """A fake of the embedded cluster, which the cluster's tests start."""

    def __init__(self, *nodes: NodeStatus) -> None:
        self.config = ClusterConfig.parse(INPUTS)
        self.nodes = nodes
        self.calls: list[str] = []

    def up(self) -> ClusterInfo:
        self.calls.append("up")
        return ClusterInfo("https://10.89.0.1:6443", "CA", "kubeconfig")

    def serve(self) -> ClusterInfo:
        self.calls.append("serve")
        return ClusterInfo("https://10.89.0.1:6443", "CA", "kubeconfig")

    def down(self) -> None:
        self.calls.append("down")

    def status(self) -> ClusterStatus:
        return ClusterStatus("tiny", "degraded", "https://10.89.0.1:6443", self.nodes)


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TRAINYARD_STATE", str(tmp_path))
    return tmp_path


def use(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    monkeypatch.setattr(embedded_cluster, "_cluster", lambda inputs, progress: cluster)
    return cluster


def test_every_wrong_input_is_named_with_what_is_allowed() -> None:
    wrong = {
        **INPUTS,
        "name": "Way Too Long A Name",
        "nodes": [{"name": "a", "pool": "p", "gpus": -1}],
        "x": 1,
    }
    failures = {failure.property: failure.reason for failure in EmbeddedCluster().check(wrong)}
    assert {"name", "nodes[0].gpus", "x"} <= failures.keys()
    assert "greater than or equal to 0" in failures["nodes[0].gpus"]
    assert EmbeddedCluster().check(INPUTS) == []
    assert [each.property for each in EmbeddedCluster().check({**INPUTS, "nodes": []})] == ["nodes"]


def test_the_keys_of_the_object_store_are_retained_after_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = use(FakeCluster(), monkeypatch)
    first = EmbeddedCluster().create(INPUTS, RecordedProgress())
    EmbeddedCluster().delete(INPUTS, RecordedProgress())
    again = EmbeddedCluster().create(INPUTS, RecordedProgress())
    assert again == first
    assert cluster.calls == ["serve", "down", "serve"]
    assert first.keys() == EmbeddedCluster.OUTPUTS


def test_only_their_owner_can_read_the_keys(tmp_path: Path) -> None:
    file = tmp_path / "data" / "keys.json"
    keys = object_store_keys(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert (len(keys["objectStoreAccessKey"]), len(keys["objectStoreSecretKey"])) == (20, 40)
    assert object_store_keys(tmp_path / "other.json") != keys


def test_a_cluster_without_a_run_folder_does_not_exist() -> None:
    with pytest.raises(ResourceNotFound):
        EmbeddedCluster().read(INPUTS, {}, RecordedProgress())


def test_a_node_that_is_not_ready_reads_as_absent(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state / "tiny" / "run").mkdir(parents=True)
    nodes = NodeStatus("system-0", "system", "ready", 0), NodeStatus("spot-0", "spot", "gone", 2)
    use(FakeCluster(*nodes), monkeypatch)
    live = EmbeddedCluster().read(INPUTS, {"endpoint": "e"}, RecordedProgress())
    assert live.inputs == {**INPUTS, "nodes": INPUTS["nodes"][:1]}
    assert live.outputs == {"endpoint": "e"}


def test_a_complete_cluster_reads_as_it_was_declared(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (state / "tiny" / "run").mkdir(parents=True)
    use(FakeCluster(*(NodeStatus(n["name"], n["pool"], "ready", 0) for n in INPUTS["nodes"])), monkeypatch)
    assert EmbeddedCluster().read(INPUTS, {}, RecordedProgress()).inputs == INPUTS


def test_a_cluster_without_nodes_still_exists() -> None:
    """The state has one after a killed `down`, since the refresh of the next `down` finds no ready node."""
    assert embedded_cluster._cluster({**INPUTS, "nodes": []}, RecordedProgress()).config.nodes == ()
