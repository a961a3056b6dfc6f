"""Programs of packages that we did not write, on two nodes of a cluster, as a member of a team starts them.

The image has none of these packages, and what they need is too large for a folder of code: all of it lies on
the team's volume. Each program is what its wheel ships, with our callback in ten lines at most.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from infra.errors import TrainyardError
from tests.e2e.stack import LocalStack
from tests.e2e.tenants import Person, command_of
from tests.training.foreign.programs import PACKAGES, PROGRAMS
from trainyard_train.observability.metrics import FILE, read_metrics, surviving_steps

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(900)]

VOLUME = "/mnt/checkpoints"
OFFLINE = ("HF_HUB_OFFLINE=1", "HF_DATASETS_OFFLINE=1", "HF_EVALUATE_OFFLINE=1")
PLACE = (f"PYTHONPATH={VOLUME}/packages", f"HF_HOME={VOLUME}/.cache/home", "ACCELERATE_USE_CPU=true")


@pytest.fixture(scope="module")
def volume(stack: LocalStack) -> Path:
    """The team's volume, with the packages that its members have put there."""
    found = stack.data / "checkpoints" / "research"
    shutil.copytree(PACKAGES, found / "packages")
    return found


def one_node(source: str) -> str:
    return source


def of_all_nodes(source: str) -> str:
    """Lightning takes the number of nodes as an argument."""
    with_nodes = 'accelerator="cpu", num_nodes=int(os.environ["GROUP_WORLD_SIZE"])'
    return source.replace('accelerator="cpu"', with_nodes)


CASES = {
    "sft": (PROGRAMS[0], one_node),
    "performance": (PROGRAMS[2], one_node),
    "transformer": (PROGRAMS[3], of_all_nodes),
}


@pytest.mark.parametrize("name", CASES)
def test_a_framework_trains_on_two_nodes(
    stack: LocalStack, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program, edit = CASES[name]
    arguments = program.prepare(tmp_path)
    source = program.patched(tmp_path)
    source.write_text(edit(source.read_text()))
    monkeypatch.chdir(tmp_path)
    member = command_of(Person(stack, "mei", "research"), monkeypatch)
    variables = [word for each in (*PLACE, *OFFLINE) for word in ("--env", each)]
    started = ("run", "--gpus", "2", "--nodes", "2", "--name", name, *variables)
    try:
        member(*started, "--", "python", source.name, *arguments, "--output_dir", f"{VOLUME}/{name}/run")
    except TrainyardError as error:
        pytest.fail(f"{error}\n{member('logs', name)}")
    lines = read_metrics(volume / name / "run" / FILE)
    steps = [line["step"] for line in surviving_steps(lines)]
    assert len(steps) > 10 and steps == list(range(1, len(steps) + 1))
    assert {line["world_size"] for line in lines if "world_size" in line} == {2}
