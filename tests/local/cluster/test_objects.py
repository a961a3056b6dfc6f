"""Nodes' taints and readiness, preemption events, logs' errors, and image archives and their clones."""

import json
import tarfile
from pathlib import Path
from typing import Any

import pytest

from local.cluster.config import Taint
from local.cluster.events import EventLog, PreemptionEvent, read_events
from local.cluster.image_store import _clone
from local.cluster.images import read_archive
from local.cluster.objects import desired_taints, is_ready
from local.cluster.preemption import PreemptionRecord, _tolerates_preemption
from local.cluster.site import last_error
from tests.tables import table

SPOT = Taint(key="trainyard.dev/spot", value="true", effect="NoSchedule")
CASES = table(__file__)


def test_declared_taints_replace_earlier_declared_ones() -> None:
    found = [{"key": "old", "effect": "NoSchedule"}]
    assert desired_taints(found, [SPOT]) == [
        {"key": "trainyard.dev/spot", "value": "true", "effect": "NoSchedule"}
    ]


def test_taints_of_kubernetes_and_of_a_preemption_are_retained() -> None:
    found = [
        {"key": "node.kubernetes.io/not-ready", "effect": "NoExecute"},
        {"key": "trainyard.dev/preempting", "value": "1", "effect": "NoExecute"},
    ]
    assert desired_taints(found, []) == found


@pytest.mark.parametrize(("node", "ready"), CASES["nodes"])
def test_a_node_is_ready_by_its_condition_and_if_pods_may_run(node: dict[str, Any], ready: bool) -> None:
    assert is_ready(node) is ready


@pytest.mark.parametrize(("toleration", "remains"), CASES["tolerations"])
def test_only_a_pod_that_tolerates_without_limit_remains(toleration: dict[str, Any], remains: bool) -> None:
    assert _tolerates_preemption({"spec": {"tolerations": [toleration]}}) is remains


def test_events_are_read_as_they_were_recorded(tmp_path: Path) -> None:
    log = EventLog(tmp_path / "events.jsonl")
    assert read_events(log.path) == []
    log.record("spot-0", "notice")
    log.record("spot-0", "killed")
    assert read_events(log.path) == log.events
    assert [event.phase for event in log.events] == ["notice", "killed"]


def test_the_last_error_of_a_log_is_reported(tmp_path: Path) -> None:
    log = tmp_path / "kubelet.log"
    assert last_error(log) == "none"
    log.write_text("E1121 first\nF1121 too many open files\nI1121 all is well\nFlag --x is deprecated\n")
    assert last_error(log) == "F1121 too many open files"


def test_a_record_has_the_seconds_between_two_phases() -> None:
    events = (PreemptionEvent("spot-0", "killed", 10.0), PreemptionEvent("spot-0", "pods-failed", 21.5))
    assert PreemptionRecord("spot-0", None, events, ()).seconds("killed", "pods-failed") == 11.5


def archive(path: Path, *annotations: dict[str, str]) -> Path:
    manifests = [{"digest": "sha256:1", "annotations": notes} for notes in annotations]
    index = path.parent / "index.json"
    index.write_text(json.dumps({"manifests": manifests}))
    with tarfile.open(path, "w") as tar:
        tar.add(index, "index.json")
    return path


def test_an_archive_has_its_names_and_its_digest(tmp_path: Path) -> None:
    names = ({"io.containerd.image.name": "a:1"}, {"org.opencontainers.image.ref.name": "b:1"})
    found = read_archive(archive(tmp_path / "image.tar", *names))
    assert (found.names, found.digest) == (("a:1", "b:1"), "sha256:1")


def test_an_archive_without_a_name_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="names no image"):
        read_archive(archive(tmp_path / "image.tar", {}))


def test_nodes_share_the_layers_of_a_template_but_not_its_databases(tmp_path: Path) -> None:
    template = tmp_path / "template"
    for name in ("metadata/meta.db", "content/blob"):
        (template / name).parent.mkdir(parents=True)
        (template / name).write_text("as imported")
    _clone(template, tmp_path / "node" / "containerd")
    (tmp_path / "node" / "containerd" / "metadata" / "meta.db").write_text("changed by a node")
    assert (template / "metadata/meta.db").read_text() == "as imported"
    assert (template / "content/blob").samefile(tmp_path / "node" / "containerd" / "content" / "blob")


def test_an_incomplete_clone_is_replaced(tmp_path: Path) -> None:
    template, store = tmp_path / "template", tmp_path / "node" / "containerd"
    (template / "content").mkdir(parents=True)
    (store.parent / "containerd.new" / "half").mkdir(parents=True)
    _clone(template, store)
    assert [path.name for path in store.iterdir()] == ["content"]
    assert [path.name for path in store.parent.iterdir()] == ["containerd"]
