from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from infra.common.artifacts import LINKS
from infra.stackfile import Stack, load
from tests.infra.golden import CASES
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


def of_stack(name: str) -> Any:
    """A fixture with a shipped stack."""
    return pytest.fixture(scope="session")(lambda: load(stack_file(name)))


def of_plan(name: str) -> Any:
    """A fixture with the plan of a shipped stack."""
    return pytest.fixture(scope="session")(lambda rendered: plan(load(stack_file(name)), rendered))


local, local_plan = of_stack("local"), of_plan("local")
aws, aws_plan, dev_plan = of_stack("aws"), of_plan("aws"), of_plan("aws-dev")
azure, azure_plan = of_stack("azure"), of_plan("azure")
coreweave, coreweave_plan = of_stack("coreweave"), of_plan("coreweave")
gcp, gcp_plan, tpu, tpu_plan = of_stack("gcp"), of_plan("gcp"), of_stack("gcp-tpu"), of_plan("gcp-tpu")
onprem_plan = of_plan("onprem")


@pytest.fixture(scope="session")
def mixed() -> Stack:
    """A stack on premises with GPUs of NVIDIA and of AMD."""
    return load(CASES / "mixed" / "onprem.yaml")


@pytest.fixture(scope="session")
def mixed_plan(mixed: Stack, rendered: Path) -> Plan:
    """The plan of that stack."""
    return plan(mixed, rendered)
