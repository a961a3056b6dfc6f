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


@pytest.fixture(scope="session")
def aws() -> Stack:
    return load(stack_file("aws"))


@pytest.fixture(scope="session")
def aws_plan(aws: Stack, rendered: Path) -> Plan:
    return plan(aws, rendered)


@pytest.fixture(scope="session")
def azure() -> Stack:
    return load(stack_file("azure"))


@pytest.fixture(scope="session")
def azure_plan(azure: Stack, rendered: Path) -> Plan:
    return plan(azure, rendered)


@pytest.fixture(scope="session")
def coreweave() -> Stack:
    return load(stack_file("coreweave"))


@pytest.fixture(scope="session")
def coreweave_plan(coreweave: Stack, rendered: Path) -> Plan:
    return plan(coreweave, rendered)


@pytest.fixture(scope="session")
def gcp() -> Stack:
    return load(stack_file("gcp"))


@pytest.fixture(scope="session")
def gcp_plan(gcp: Stack, rendered: Path) -> Plan:
    return plan(gcp, rendered)


@pytest.fixture(scope="session")
def tpu() -> Stack:
    return load(stack_file("gcp-tpu"))


@pytest.fixture(scope="session")
def tpu_plan(tpu: Stack, rendered: Path) -> Plan:
    return plan(tpu, rendered)


@pytest.fixture(scope="session")
def onprem() -> Stack:
    return load(stack_file("onprem"))


@pytest.fixture(scope="session")
def onprem_plan(onprem: Stack, rendered: Path) -> Plan:
    return plan(onprem, rendered)


@pytest.fixture(scope="session")
def dev_plan(rendered: Path) -> Plan:
    return plan(load(stack_file("aws-dev")), rendered)
