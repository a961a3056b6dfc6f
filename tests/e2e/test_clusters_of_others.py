"""A cluster that others use too: what they have stays theirs, their Kueue runs the stack's jobs, and `down`
deletes what the stack made.
"""

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.stack import Declaration, LocalStack

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = "import os; print('rank', os.environ['RANK'], 'of another Kueue', flush=True)"
FRAMEWORKS = ["batch/job", "kubeflow.org/mpijob", "jobset.x-k8s.io/jobset", "trainer.kubeflow.org/trainjob"]
ONCE = "ReadWriteOnce"
UPSTREAMS = {
    "apiVersion": "config.kueue.x-k8s.io/v1beta2",
    "kind": "Configuration",
    "health": {"healthProbeBindAddress": ":8081"},
    "metrics": {"bindAddress": ":8443"},
    "webhook": {"port": 9443},
    "leaderElection": {"leaderElect": True, "resourceName": "c1f6bfd2.kueue.x-k8s.io"},
    "integrations": {"frameworks": [*FRAMEWORKS, "pod", "deployment", "statefulset"]},
}
"""What the chart of Kueue 0.18 configures by itself: pods are queued, CPU and memory need quota."""


def made(api_version: str, kind: str, name: str, namespace: str = "", **more: Any) -> Declaration:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {})}
    return {"apiVersion": api_version, "kind": kind, "metadata": metadata, **more}


def strangers_objects() -> list[Declaration]:
    """A namespace of another team with a Secret, a claim and a queue of its own; a kind of theirs."""
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions}
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "theirs"}
    return [
        made("v1", "Namespace", "vision"),
        made("storage.k8s.io/v1", "StorageClass", "theirs", provisioner="kubernetes.io/no-provisioner"),
        made("v1", "Secret", "key", "vision", stringData={"a": "b"}),
        made("v1", "PersistentVolumeClaim", "data", "vision", spec={**storage, "accessModes": [ONCE]}),
        made("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", spec=definition),
        made("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "theirs", spec={}),
    ]


THEIRS = (
    ("namespace", "vision"),
    ("storageclass", "theirs"),
    ("secret", "key", "-n", "vision"),
    ("pvc", "data", "-n", "vision"),
    ("crd", "widgets.example.com"),
    ("resourceflavor", "theirs"),
)
KUEUES = (
    ("namespace", "kueue-system"),
    ("crd", "clusterqueues.kueue.x-k8s.io"),
    ("clusterrole", "kueue-manager-role"),
    ("deployment", "kueue-controller-manager", "-n", "kueue-system"),
    ("validatingwebhookconfiguration", "kueue-validating-webhook-configuration"),
)


def identities(cluster: LocalStack, *wanted: tuple[str, ...]) -> dict[str, str]:
    """UIDs of objects: one that was deleted and created again has another."""
    return {" ".join(each): str(cluster.get(*each)["metadata"]["uid"]) for each in wanted}


def contents(cluster: LocalStack, *wanted: tuple[str, ...]) -> dict[str, Any]:
    """What users write into objects, and their marks."""
    found = {" ".join(each): cluster.get(*each) for each in wanted}
    return {
        name: {key: value for key, value in each.items() if key not in {"metadata", "status"}}
        | {"marks": (each["metadata"].get("annotations"), each["metadata"].get("labels"))}
        for name, each in found.items()
    }


@pytest.fixture(scope="module")
def theirs(platform: LocalStack) -> dict[str, Any]:
    """Objects of others, as they were before the stack's further changes."""
    platform.apply(*strangers_objects())
    return {**identities(platform, *THEIRS), "contents": contents(platform, *THEIRS)}


def with_their_kueue(declaration: Declaration) -> None:
    declaration.setdefault("operators", {})["kueue"] = "existing"


@pytest.fixture(scope="module")
def with_existing(platform: LocalStack, theirs: dict[str, Any]) -> LocalStack:
    """The stack, with the Kueue that it had installed left to others."""
    platform.trainyard("up", "--refresh")  # the tests before have taken objects away
    before = identities(platform, *KUEUES)
    document = yaml.safe_load(platform.file.read_text())
    with_their_kueue(document["config"]["trainyard:stack"])
    platform.file.write_text(yaml.safe_dump(document))
    output = platform.trainyard("up").text
    assert "operators.kueue: existing: " in output and "stay in the cluster" in output
    assert identities(platform, *KUEUES) == before
    return platform


def test_a_second_stack_on_the_cluster_is_refused_before_its_first_object(
    platform: LocalStack, theirs: dict[str, Any], tmp_path: Path
) -> None:
    second = LocalStack(tmp_path, name="second")
    second.environment["KUBECONFIG"] = platform.environment["KUBECONFIG"]
    text = platform.file.read_text().replace("name: guest", "name: second")
    second.file.write_text(text)
    namespaces = platform.names("namespaces")
    for command in ("preview", "up"):
        refused = second.trainyard(command, code=2).text
        assert "stack trainyard/guest has it since" in refused
        assert "Namespace team-research" in refused, "all findings come at once"
    assert platform.names("namespaces") == namespaces


def test_an_operator_that_becomes_existing_stays_as_it_is(with_existing: LocalStack) -> None:
    assert with_existing.names("clusterqueues") == ["gpu"]
    assert "unchanged" in with_existing.trainyard("up").changes


def test_jobs_run_by_a_kueue_with_upstreams_own_configuration(
    with_existing: LocalStack, tmp_path: Path
) -> None:
    data = {"controller_manager_config.yaml": yaml.safe_dump(UPSTREAMS)}
    with_existing.apply(made("v1", "ConfigMap", "kueue-manager-config", "kueue-system", data=data))
    with_existing.kubectl("rollout", "restart", "deployment", "-n", "kueue-system")
    with_existing.kubectl("rollout", "status", "deployment", "-n", "kueue-system", "--timeout=300s")
    # What receives code starts anew under this Kueue, too.
    with_existing.kubectl("delete", "pods", "-n", "team-research", "-l", "app.kubernetes.io/name=uploads")
    (tmp_path / "train.py").write_text(PROGRAM)
    program = str(Path(sys.prefix) / "bin" / "trainyard")
    words = ["run", "--team", "research", "--gpus", "2", "--nodes", "2", "--name", "others"]
    command = [program, *words, "--", "python", "train.py"]
    done = subprocess.run(
        command, env=with_existing.environment, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "rank 1 of another Kueue" in done.stdout and "others: complete" in done.stdout
    with_existing.trainyard("cancel", "others")


def test_down_deletes_the_platform_and_nothing_of_others(
    with_existing: LocalStack, theirs: dict[str, Any]
) -> None:
    kueue = identities(with_existing, *KUEUES)
    with_existing.trainyard("down", "--yes")
    assert not {"team-research", "trainyard-storage"} & set(with_existing.names("namespaces"))
    assert not [name for name in with_existing.names("crds") if "kubeflow" in name or "jobset" in name]
    assert len(with_existing.names("nodes")) == 5
    assert identities(with_existing, *KUEUES) == kueue
    assert {**identities(with_existing, *THEIRS), "contents": contents(with_existing, *THEIRS)} == theirs
    assert "trainyard" not in with_existing.names("configmaps", "-n", "kube-system")
