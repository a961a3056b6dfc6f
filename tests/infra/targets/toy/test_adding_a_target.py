"""docs/dev/adding-a-target.md is complete: the toy target needs only a folder and a line in the registry."""

import io
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from infra.common import target_registry as registry
from infra.errors import InputError
from infra.stackfile import Stack, parse
from tests.infra.plan import Plan, plan
from tests.processes import capture
from trainyard.cost.price import show_price
from trainyard.forms import ReportForm

ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def registered() -> Iterator[None]:
    """Add the toy target's line to the registry."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setitem(registry.TARGETS, "toy", "tests.infra.targets.toy.target:TARGET")
        yield


def stack_on_toys(local: Stack, **provider: Any) -> Stack:
    """Return the local stack with the toy target as its provider, and with the same pools and queues."""
    data = local.model_dump(mode="json", by_alias=True, exclude_none=True)
    return parse({**data, "target": {"kind": "toy", "address": "https://toy.invalid", **provider}})


@pytest.fixture(scope="module")
def toy_plan(registered: None, local: Stack, rendered: Path) -> Plan:
    return plan(stack_on_toys(local), rendered)


def test_its_plan_has_the_platform(toy_plan: Plan, local: Stack) -> None:
    assert set(toy_plan.named("ClusterQueue")) == {queue.name for queue in local.queues}
    portable = {"torch-distributed", "mpi-distributed"}
    assert set(toy_plan.named("ClusterTrainingRuntime")) == set(local.runtimes) | portable
    claims = toy_plan.named("PersistentVolumeClaim").values()
    assert {claim["spec"]["storageClassName"] for claim in claims} == {"toys"}


def test_its_outputs_are_those_of_every_target(toy_plan: Plan, local_plan: Plan) -> None:
    assert toy_plan.outputs.keys() == local_plan.outputs.keys()
    assert toy_plan.outputs["kind"] == "toy"


def test_its_validators_run(registered: None, local: Stack) -> None:
    with pytest.raises(InputError, match="an address with https://"):
        stack_on_toys(local, address="toy.invalid")


def test_its_price_explains_why_nothing_is_bought(registered: None, local: Stack) -> None:
    text = io.StringIO()
    show_price(stack_on_toys(local), ReportForm.TEXT, Console(file=text, width=120))
    assert text.getvalue() == "local is a toy: nothing is bought\n"


def test_the_guide_names_every_file_that_names_a_target() -> None:
    """CoreWeave as the example: a cloud with machines, prices, fabrics, policies and a rehearsal."""
    besides = (
        ":!*coreweave*",
        ":!docs",
        ":!tests",
        ":!templates/pipelines/github",
        ":!README.md",
        ":!mkdocs.yml",
        ":!CHANGELOG.md",
    )
    naming = git_lines("grep", "-il", "coreweave", "--", *besides)
    section = (ROOT / "docs/dev/adding-a-target.md").read_text().partition("## Every other file")[2]
    table, _, generated = section.partition("## Proof")[0].partition("Generated:")
    assert set(re.findall(r"`([\w/.-]+\.\w+)`", table)) == naming - set(
        re.findall(r"`([\w/.-]+)`", generated)
    )
    assert len(re.findall(r"`([\w/.-]+\.\w+)`", table)) <= 12


def git_lines(*arguments: str) -> set[str]:
    return set(capture(["git", *arguments], cwd=ROOT, check=True).stdout.split())


def test_an_unknown_target_is_refused_with_those_that_exist(registered: None, local: Stack) -> None:
    with pytest.raises(InputError, match="toy"):
        stack_on_toys(local, kind="toys")
