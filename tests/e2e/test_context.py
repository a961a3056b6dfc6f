"""A stack on a cluster that others made, reached by a context: an embedded one without our platform."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
import yaml

from local.cluster import ClusterConfig, EmbeddedCluster
from local.paths import Paths
from local.progress import for_stream
from local.toolchain import Toolchain, load_versions
from tests.e2e.stack import Declaration, LocalStack

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(1800)]

NAME = "guest"
IMPORTED = {
    "policy": "kubernetes-images-pinned",
    "resource": "kubernetes:apps/v1:Deployment::*",
    "owner": "tests",
    "reason": "the cluster has the images, which the stack of another's cluster cannot know",
    "expires": str(date.today() + timedelta(days=30)),
}
"""Images are asked for by tag where the cluster is not ours: who owns it answers for them."""


@pytest.fixture(scope="module")
def host(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """The same nodes and images as the local stack's, in its place."""
    stack.trainyard("down")
    folder = tmp_path_factory.mktemp("host")
    config = ClusterConfig.parse(json.loads(stack.cluster_json.read_text()))
    config = config.model_copy(update={"name": "host", "data_dir": str(folder / "data")})
    paths = Paths(cache=Paths.from_environment().cache, state=folder)
    progress = for_stream(sys.stderr)
    cluster = EmbeddedCluster(
        config, paths=paths, toolchain=Toolchain(paths, load_versions(), progress), progress=progress
    )
    cluster.up()
    yield cluster
    cluster.down(purge=True)


@pytest.fixture(scope="module")
def guest(host: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> LocalStack:
    """A stack that names the cluster by its context."""

    def by_context(declaration: Declaration) -> None:
        context = host.info().kubeconfig.split("current-context: ")[1].split()[0]
        declaration["provider"] = {"kind": "local", "cluster": {"context": context}}

    guest = LocalStack(tmp_path_factory.mktemp(NAME), name=NAME)
    guest.kubeconfig = host.layout.kubeconfig
    guest.environment["KUBECONFIG"] = str(host.layout.kubeconfig)
    guest.declare(by_context)
    document = yaml.safe_load(guest.file.read_text())
    document["config"]["trainyard:exemptions"] = [IMPORTED]
    guest.file.write_text(yaml.safe_dump(document))
    return guest


def test_a_preview_lists_what_would_be_made_and_makes_nothing(guest: LocalStack) -> None:
    before = guest.names("namespaces")
    assert guest.trainyard("preview").changes["created"] > 100
    assert guest.names("namespaces") == before


def test_the_platform_comes_up_on_a_cluster_that_others_made(guest: LocalStack) -> None:
    guest.trainyard("up", "--no-job")
    assert guest.names("clusterqueues") == ["gpu"]
    assert [item["status"]["readyReplicas"] for item in guest.get("deployments", "-A")["items"]] == [1] * 5
    assert list(guest.trainyard("up", "--no-job").changes) == ["unchanged"]


def test_down_takes_the_platform_away_and_leaves_the_cluster(guest: LocalStack) -> None:
    guest.trainyard("down")
    assert not {"kueue-system", "team-research", "trainyard-storage"} & set(guest.names("namespaces"))
    assert not [name for name in guest.names("crds") if "kueue" in name or "kubeflow" in name]
    assert len(guest.names("nodes")) == 5
