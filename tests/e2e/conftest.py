"""The local stack that most end-to-end tests share: it starts once, and is removed at the end."""

import json
import sys
from collections.abc import Iterator
from datetime import date, timedelta

import pytest
import yaml

from engine.paths import Paths
from engine.progress import for_stream
from local.cluster.cluster import EmbeddedCluster
from local.cluster.config import ClusterConfig
from local.toolchain import Toolchain, load_versions
from tests.e2e.kills import OPERATORS, ORPHAN, kill_up
from tests.e2e.leftovers import exclusive
from tests.e2e.machine import Traces
from tests.e2e.stack import BARE, FAR, NAME, Declaration, LocalStack, TrainingRun, job, patched

ORDER = (
    "language_host cluster legacy_jobs tenancy local_stack jobs member frameworks topology search soak shares"
    " recovery context jobs_by_context targets clusters_of_others fleet"
)
"""Modules, ordered so that one cluster runs at a time: `test_recovery` takes the first down."""
HOST, GUEST = "host", "guest"
IMPORTED = {
    "policy": "kubernetes-images-pinned",
    "resource": "kubernetes:apps/v1:Deployment::*",
    "owner": "tests",
    "reason": "the cluster has the images, which the stack of another's cluster cannot know",
    "expires": str(date.today() + timedelta(days=30)),
}
"""Images by tag: on an existing cluster its owner provides them."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules in their order, and each module's tests as they are written."""
    rank = {f"test_{name}": index for index, name in enumerate(ORDER.split())}
    items.sort(key=lambda item: rank.get(item.path.stem, -1))


@pytest.fixture(scope="session")
def ranges() -> Iterator[None]:
    """Hold the lock on the address ranges of these tests' clusters."""
    with exclusive(BARE, NAME, HOST, FAR, progress=for_stream(sys.stderr)):
        yield


@pytest.fixture(scope="session")
def unstarted(ranges: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The stack, declared and not up; removes what still runs at the end."""
    stack = LocalStack(tmp_path_factory.mktemp("local"))
    yield stack
    stack.declare()
    stack.trainyard("down", "--purge")


@pytest.fixture(scope="session")
def before(unstarted: LocalStack) -> Traces:
    """The traces on the host before the stack was started."""
    return Traces.of(unstarted.folder, NAME)


def add_interns(declaration: Declaration) -> None:
    """Add a team that may have less than its pool: one borrowed accelerator."""
    flavor = {"pool": "on-demand", "quota": 0, "borrowing_limit": 1}
    for team in declaration["teams"]:
        team["queue"] = "gpu"
    declaration["queues"].append({"name": "small", "cohort": "trainyard", "flavors": [flavor]})
    declaration["teams"].append({"name": "interns", "queue": "small", "members": ["interns"]})


@pytest.fixture(scope="session")
def stack(unstarted: LocalStack, before: Traces) -> LocalStack:
    """The stack, up, without its job, and with what `test_legacy_jobs` and `test_tenancy` need."""
    unstarted.standing = (patched({"operators": {"training_operator": {}}}), add_interns)
    unstarted.declare()
    unstarted.trainyard("up")
    unstarted.cluster_json.write_text((unstarted.run / "cluster.json").read_text())
    return unstarted


@pytest.fixture(scope="session")
def uninterrupted(stack: LocalStack) -> TrainingRun:
    """A run without interruption, with which all others are compared."""
    with stack.declared(job("calm")):
        stack.trainyard("run", str(stack.job_file))
    return stack.run_of("calm")


@pytest.fixture(scope="session")
def host(stack: LocalStack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedCluster]:
    """A cluster with the local stack's nodes and images, at the stack's addresses."""
    stack.trainyard("down")
    folder = tmp_path_factory.mktemp(HOST)
    config = ClusterConfig.parse(json.loads(stack.cluster_json.read_text()))
    config = config.model_copy(update={"name": HOST, "data_dir": str(folder / "data")})
    paths = Paths(cache=Paths.from_environment().cache, state=folder)
    # Not the stream that pytest sets for one test: that is closed when the cluster is removed.
    progress = for_stream(sys.__stderr__ or sys.stderr)
    cluster = EmbeddedCluster(
        config, paths=paths, toolchain=Toolchain(paths, load_versions(), progress), progress=progress
    )
    cluster.up()
    yield cluster
    cluster.down(purge=True)


@pytest.fixture(scope="session")
def guest(host: EmbeddedCluster, tmp_path_factory: pytest.TempPathFactory) -> LocalStack:
    """A stack on this cluster, which it names by its context."""

    def by_context(declaration: Declaration) -> None:
        context = host.info().kubeconfig.split("current-context: ")[1].split()[0]
        declaration["target"] = {"kind": "local", "cluster": {"context": context}}
        declaration["teams"][0]["members"] = ["research"]

    guest = LocalStack(tmp_path_factory.mktemp(GUEST), name=GUEST)
    guest.kubeconfig = host.layout.kubeconfig
    guest.environment["KUBECONFIG"] = str(host.layout.kubeconfig)
    guest.declare(by_context)
    document = yaml.safe_load(guest.file.read_text())
    document["config"]["trainyard:exemptions"] = [IMPORTED]
    guest.file.write_text(yaml.safe_dump(document))
    return guest


@pytest.fixture(scope="session")
def platform(guest: LocalStack) -> LocalStack:
    """The platform on the existing cluster, without a job, after two killed `up`."""
    for moment in (ORPHAN, OPERATORS):
        kill_up(guest, moment)
    # The preview at the start of `up` calls webhooks of operators that do not run.
    guest.kubectl("delete", "pods", "--all", "--namespace", "kubeflow-system", "--force")
    guest.trainyard("up")
    return guest
