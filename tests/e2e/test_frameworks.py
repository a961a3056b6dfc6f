"""Third-party training programs on two nodes of a cluster, started by a team's member.

The packages are on the team's volume: the image lacks them, and they are too large for a folder of code. Each
program is from its wheel, with our callback in at most ten lines.
"""

import json
import re
import shutil
from pathlib import Path

import pytest

from infra.errors import TrainyardError
from tests.e2e.stack import LocalStack
from tests.e2e.tenants import Person, command_of
from tests.training.foreign.programs import PACKAGES, PROGRAMS
from trainyard_train.contract import FILE, read_metrics, surviving_steps

pytestmark = [pytest.mark.cluster, pytest.mark.soak, pytest.mark.timeout(900)]

VOLUME = "/mnt/checkpoints"
ACCELERATE, LAUNCHER = f"{VOLUME}/packages/bin/accelerate", f"{VOLUME}/packages/bin/deepspeed"
OFFLINE = ("HF_HUB_OFFLINE=1", "HF_DATASETS_OFFLINE=1", "HF_EVALUATE_OFFLINE=1")
PATHS = (f"PYTHONPATH={VOLUME}/packages", f"HF_HOME={VOLUME}/.cache/home", "ACCELERATE_USE_CPU=true")


@pytest.fixture(scope="module")
def volume(stack: LocalStack) -> Path:
    """The team's volume, with the packages that its members have copied to it."""
    found = stack.data / "checkpoints" / "research"
    shutil.copytree(PACKAGES, found / "packages")
    for launcher in (ACCELERATE, LAUNCHER):
        file = found / Path(launcher).relative_to(VOLUME)
        _, rest = file.read_text().split("\n", 1)
        file.write_text(f"#!/usr/bin/env python3\n{rest}")  # in place of the path of this host's Python
    return found


def one_node(source: str) -> str:
    return source


def of_all_nodes(source: str) -> str:
    """Lightning takes the number of nodes as an argument."""
    with_nodes = 'accelerator="cpu", nodes=int(os.environ["GROUP_WORLD_SIZE"])'
    return source.replace('accelerator="cpu"', with_nodes)


PYTHON = ("python",)
CASES = {
    "sft": (PROGRAMS[0], one_node, PYTHON),
    "performance": (PROGRAMS[2], one_node, PYTHON),
    "launched": (PROGRAMS[2], one_node, (ACCELERATE, "launch")),
    "transformer": (PROGRAMS[3], of_all_nodes, PYTHON),
}


@pytest.mark.parametrize("name", CASES)
def test_a_framework_trains_on_two_nodes(
    stack: LocalStack, volume: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    program, edit, started_by = CASES[name]
    arguments = program.prepare(tmp_path)
    source = program.patched(tmp_path)
    source.write_text(edit(source.read_text()))
    monkeypatch.chdir(tmp_path)
    member = command_of(Person(stack, "mei", "research"), monkeypatch)
    variables = [word for each in (*PATHS, *OFFLINE) for word in ("--env", each)]
    started = ("run", "--gpus", "2", "--nodes", "2", "--name", name, *variables)
    try:
        member(*started, "--", *started_by, source.name, *arguments, "--output_dir", f"{VOLUME}/{name}/run")
    except TrainyardError as error:
        pytest.fail(f"{error}\n{member('logs', name)}")
    lines = read_metrics(volume / name / "run" / FILE)
    steps = [line["step"] for line in surviving_steps(lines)]
    assert len(steps) > 10 and steps == list(range(1, len(steps) + 1))
    assert {line["world_size"] for line in lines if "world_size" in line} == {2}


BY_DEEPSPEED = """
import argparse, torch, deepspeed
parser = argparse.ArgumentParser()
parser.add_argument("--local_rank", type=int, default=-1)
args = deepspeed.add_config_arguments(parser).parse_args()
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled: no compiler here
deepspeed.init_distributed("gloo")
torch.manual_seed(1)
net = torch.nn.Linear(8, 1)
engine, _, _, _ = deepspeed.initialize(args=args, model=net, model_parameters=net.parameters())
for step in range(10):
    loss = engine(torch.ones(4, 8)).square().mean()
    engine.backward(loss)
    engine.step()
rank, world = torch.distributed.get_rank(), torch.distributed.get_world_size()
print(f"rank {rank} of {world}, local rank {args.local_rank}, loss {loss.item():.4f}", flush=True)
"""
ZERO = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.05, "torch_adam": True}},
    "zero_optimization": {"stage": 1},
}


@pytest.mark.usefixtures("volume")
def test_a_program_of_deepspeeds_launcher_trains_on_two_nodes(
    stack: LocalStack, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(BY_DEEPSPEED)
    (tmp_path / "zero.json").write_text(json.dumps(ZERO))
    monkeypatch.chdir(tmp_path)
    member = command_of(Person(stack, "mei", "research"), monkeypatch)
    variables = ("--env", f"PYTHONPATH={VOLUME}/packages", "--env", "DS_ACCELERATOR=cpu")
    started = ("run", "--gpus", "2", "--nodes", "2", "--name", "zero", *variables)
    arguments = ("train.py", "--deepspeed", "--deepspeed_config", "zero.json")
    try:
        message = member(*started, "--", LAUNCHER, *arguments)
    except TrainyardError as error:
        pytest.fail(f"{error}\n{member('logs', 'zero')}")
    found = set(re.findall(r"node (\d) \| .*rank (\d) of (\d), local rank (\d), loss", message))
    assert found == {("0", "0", "2", "0"), ("1", "1", "2", "0")}
