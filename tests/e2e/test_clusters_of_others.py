"""A cluster that others use too: what they have stays theirs, their Kueue runs the stack's jobs, and `down`
deletes what the stack made.
"""

from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.e2e.stack import Declaration, LocalStack
from tests.objects import thing
from tests.tables import table

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = "import os; print('rank', os.environ['RANK'], 'of another Kueue', flush=True)"
ONCE = "ReadWriteOnce"


def strangers_objects() -> list[Declaration]:
    """A namespace of another team with a Secret, a claim and a queue of its own; a kind of theirs."""
    names = {"kind": "Widget", "plural": "widgets", "singular": "widget"}
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    versions = [{"name": "v1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}]
    definition = {"group": "example.com", "names": names, "scope": "Namespaced", "versions": versions}
    storage = {"resources": {"requests": {"storage": "1Gi"}}, "storageClassName": "theirs"}
    return [
        thing("v1", "Namespace", "vision"),
        thing("storage.k8s.io/v1", "StorageClass", "theirs", provisioner="kubernetes.io/no-provisioner"),
        thing("v1", "Secret", "key", "vision", stringData={"a": "b"}),
        thing("v1", "PersistentVolumeClaim", "data", "vision", spec={**storage, "accessModes": [ONCE]}),
        thing("apiextensions.k8s.io/v1", "CustomResourceDefinition", "widgets.example.com", spec=definition),
        thing("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "theirs", spec={}),
    ]


THEIRS = (
    *("namespace vision", "storageclass theirs", "secret key -n vision", "pvc data -n vision"),
    *("crd widgets.example.com", "resourceflavor theirs"),
)
KUEUES = (
    *("namespace kueue-system", "crd clusterqueues.kueue.x-k8s.io", "clusterrole kueue-manager-role"),
    "deployment kueue-controller-manager -n kueue-system",
    "validatingwebhookconfiguration kueue-validating-webhook-configuration",
)


def identities(cluster: LocalStack, *wanted: str) -> dict[str, str]:
    """UIDs of objects: one that was deleted and created again has another."""
    return {each: str(cluster.get(*each.split())["metadata"]["uid"]) for each in wanted}


def contents(cluster: LocalStack, *wanted: str) -> dict[str, Any]:
    """What users write into objects, and their marks."""
    found = {each: cluster.get(*each.split()) for each in wanted}
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


@pytest.fixture(scope="module")
def with_existing(platform: LocalStack, theirs: dict[str, Any]) -> LocalStack:
    """The stack, with the Kueue that it had installed left to others."""
    platform.trainyard("up", "--refresh")  # the tests before have taken objects away
    before = identities(platform, *KUEUES)
    document = yaml.safe_load(platform.file.read_text())
    document["config"]["trainyard:stack"].setdefault("operators", {})["kueue"] = "existing"
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
    data = {"controller_manager_config.yaml": yaml.safe_dump(table(__file__, "kueue"))}
    with_existing.apply(thing("v1", "ConfigMap", "kueue-manager-config", "kueue-system", data=data))
    with_existing.kubectl("rollout", "restart", "deployment", "-n", "kueue-system")
    with_existing.kubectl("rollout", "status", "deployment", "-n", "kueue-system", "--timeout=300s")
    # What receives code starts anew under this Kueue, too.
    with_existing.kubectl("delete", "pods", "-n", "team-research", "-l", "app.kubernetes.io/name=uploads")
    printed = with_existing.run_folder(tmp_path, "others", PROGRAM)
    assert "rank 1 of another Kueue" in printed and "others: complete" in printed
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
