"""The local target on an existing cluster: by a context, or by the name of a kind cluster."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from infra.errors import InputError
from infra.stackfile import Stack
from infra.stackfile.target import ContextCluster
from infra.targets.local.cluster import cluster as local_cluster
from tests.infra.golden import GOLDEN, assert_matches
from tests.infra.plan import IMAGE, Plan, plan

KUBECONFIG = {
    "apiVersion": "v1",
    "kind": "Config",
    "contexts": [{"name": name, "context": {"cluster": "c", "user": "u"}} for name in ("dev", "kind-local")],
    "clusters": [
        {"name": "c", "cluster": {"server": "https://127.0.0.1:6443", "certificate-authority-data": "Y2E="}}
    ],
    "users": [{"name": "u", "user": {"client-certificate": "dev.crt"}}, {"name": "other", "user": {}}],
}


@pytest.fixture(scope="module")
def kubeconfig(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    path = tmp_path_factory.mktemp("kube") / "config"
    path.write_text(yaml.safe_dump(KUBECONFIG))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("KUBECONFIG", str(path))
        yield path


def with_cluster(stack: Stack, cluster: object) -> Stack:
    return stack.model_copy(update={"target": stack.target.model_copy(update={"cluster": cluster})})


@pytest.fixture(scope="module")
def on_a_context(local: Stack, rendered: Path, kubeconfig: Path) -> Plan:
    return plan(with_cluster(local, ContextCluster(context="dev")), rendered)


def test_a_stack_on_a_context_creates_and_deletes_no_cluster(on_a_context: Plan) -> None:
    assert not on_a_context.named("EmbeddedCluster")
    assert {each.deleted_with for each in on_a_context.resources} == {""}
    assert on_a_context.outputs["endpoint"] == "https://127.0.0.1:6443"


def test_all_targets_get_the_same_platform(local_plan: Plan, on_a_context: Plan) -> None:
    def platform(found: Plan) -> set[str]:
        return {each.urn for each in found.resources if each.type.startswith("kubernetes:")}

    assert platform(on_a_context) == platform(local_plan)


def test_a_kind_cluster_that_does_not_exist_is_explained_and_its_configuration_written(
    local: Stack, rendered: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    monkeypatch.setattr(local_cluster, "LINKS", tmp_path)
    with pytest.raises(InputError, match="kind create cluster --config"):
        plan(with_cluster(local, "kind"), rendered)
    assert_matches((tmp_path / "kind-local.yaml").read_text(), GOLDEN / "kind-local.yaml")


def test_a_new_training_image_reaches_the_nodes(local_plan: Plan) -> None:
    nodes = local_plan.named("EmbeddedCluster")["local"]["nodes"]
    assert {node["labels"]["trainyard.dev/training-image"] for node in nodes} == {IMAGE.rpartition(":")[2]}
    assert all("training" in node["images"] for node in nodes)
