"""The embedded cluster without running processes; tests/e2e/test_cluster.py starts one."""

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from engine.paths import Paths
from infra.errors import TrainyardError
from local.cluster import processes
from local.cluster.cluster import EmbeddedCluster
from local.cluster.config import ClusterConfig, NodeConfig
from local.cluster.events import EventLog
from local.cluster.preemption import Preemption
from tests.engine.progress import RecordedProgress
from tests.processes import wait_for

NODES = (NodeConfig(name="spot-0", pool="spot"),)


class NotReadyNodeApi:
    """A fake API server with a node that is not ready; it records deletions."""

    def __init__(self) -> None:
        self.deleted: list[str] = []

    def get(self, path: str) -> dict[str, Any]:
        return {"spec": {}, "status": {}}

    def items(self, path: str, query: Mapping[str, str]) -> list[Any]:
        return []

    def merge(self, path: str, content: dict[str, Any]) -> None: ...

    def delete(self, path: str) -> None:
        self.deleted.append(path)


@pytest.fixture
def cluster(tmp_path: Path) -> EmbeddedCluster:
    config = ClusterConfig(name="local", kubernetes_version="v1.35.4", nodes=NODES, data_dir="/data")
    toolchain: Any = None
    paths = Paths(tmp_path / "cache", tmp_path / "state")
    return EmbeddedCluster(config, paths=paths, toolchain=toolchain, progress=RecordedProgress())


@pytest.fixture
def identity(cluster: EmbeddedCluster) -> Iterator[Path]:
    path = cluster.layout.node("spot-0") / "machine.json"
    yield path
    processes.end(path)


@pytest.mark.parametrize("notice_seconds", [None, 0.0])
def test_a_node_that_is_restored_while_it_is_preempted_remains(
    cluster: EmbeddedCluster, identity: Path, tmp_path: Path, notice_seconds: float | None
) -> None:
    def kill_and_be_restored() -> None:
        sleep = [sys.executable, "-c", "import time; time.sleep(600)", str(identity)]
        processes.start(sleep, os.environ, identity.parent / "log")
        wait_for(lambda: processes.find(identity))

    api: Any = NotReadyNodeApi()
    removal = cluster._removal(cluster._site(), "spot-0")
    log = EventLog(tmp_path / "events.jsonl")
    preemption = Preemption("spot-0", api, log, kill_and_be_restored, removal)
    with pytest.raises(TrainyardError, match="started again while it was preempted"):
        preemption.run(notice_seconds)
    assert api.deleted == []
    assert processes.find(identity)
    assert identity.parent.exists()
