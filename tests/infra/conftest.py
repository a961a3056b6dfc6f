from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from infra.common.artifacts import LINKS
from infra.stackfile import Stack, load
from tests.infra.kubeconfigs import write_kubeconfig
from tests.infra.plan import Plan, plan, stack_file


@pytest.fixture(scope="session")
def rendered() -> Path:
    """The clone's folder of rendered charts, which are named by their content and can be reused."""
    return LINKS / "rendered"


@pytest.fixture(scope="session", autouse=True)
def default_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Pin the environment variables that would change the plan."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRAINYARD_STATE", "/var/lib/trainyard")
        patch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path_factory.mktemp("kube") / "config")))
        yield


@pytest.fixture(scope="session")
def local() -> Stack:
    return load(stack_file("local"))


@pytest.fixture(scope="session")
def local_plan(local: Stack, rendered: Path) -> Plan:
    return plan(local, rendered)
