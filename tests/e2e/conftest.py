"""One cluster for all tests of the local stack: it is brought up once, and removed at the end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.e2e.machine import Traces
from tests.e2e.stack import NAME, LocalStack, Run, job

ORDER = (
    "test_language_host",
    "test_cluster",
    "test_local_stack",
    "test_jobs",
    "test_topology",
    "test_soak",
    "test_recovery",
    "test_context",
)
"""What needs least first; one cluster at a time: `test_recovery` takes the stack's down."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the modules in their order, and each one's tests as they are written."""
    modules = [item.path.stem for item in items]
    rank = {name: index for index, name in enumerate(ORDER)}
    order = sorted(range(len(items)), key=lambda index: rank.get(modules[index], -1))
    items[:] = [items[index] for index in order]


@pytest.fixture(scope="session")
def unstarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalStack]:
    """The stack, declared; whatever of it runs in the end is removed."""
    stack = LocalStack(tmp_path_factory.mktemp("local"))
    yield stack
    stack.declare()
    stack.trainyard("down", "--purge")


@pytest.fixture(scope="session")
def before(unstarted: LocalStack) -> Traces:
    """The host before the stack was started."""
    return Traces.of(unstarted.folder, NAME)


@pytest.fixture(scope="session")
def stack(unstarted: LocalStack, before: Traces) -> LocalStack:
    """The stack, up, without its job."""
    unstarted.trainyard("up", "--no-job")
    unstarted.cluster_json.write_text((unstarted.run / "cluster.json").read_text())
    return unstarted


@pytest.fixture(scope="session")
def uninterrupted(stack: LocalStack) -> Run:
    """A run that nothing happened to: all others are compared with it."""
    with stack.declared(job("calm")):
        stack.trainyard("submit")
    return stack.run_of("calm")
