"""A program of DeepSpeed's with `Run`, by its own launcher and by our agent, which restarts a killed rank."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.processes import free_port
from tests.training.foreign.programs import PACKAGES, environment
from tests.training.launch import events

PROGRAM = """
import argparse, json, os, signal, sys, time
from pathlib import Path

import deepspeed
import torch
from torch import nn

from trainyard_train import Run

parser = argparse.ArgumentParser()
parser.add_argument("folder", type=Path)
parser.add_argument("--stage", type=int)
parser.add_argument("--kill", action="store_true")
parser.add_argument("--local_rank")  # from DeepSpeed's launcher
options = parser.parse_args()
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False  # else it is compiled: no compiler here
deepspeed.init_distributed("gloo")
torch.manual_seed(1)
model = nn.Sequential(nn.Linear(8, 32), nn.Dropout(0.2), nn.ReLU(), nn.Linear(32, 1))
zero = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "AdamW", "params": {"lr": 0.01, "torch_adam": True}},
    "zero_optimization": {"stage": options.stage},
}
engine = deepspeed.initialize(model=model, model_parameters=model.parameters(), config=zero)[0]


class Zero:  # as in docs/moving.md
    def state_dict(self):
        own = engine.optimizer
        return {"moments": own.optimizer.state_dict(), "weights": own.single_partition_of_fp32_groups}

    def load_state_dict(self, state):
        engine.optimizer.optimizer.load_state_dict(state["moments"])
        for own, saved in zip(engine.optimizer.single_partition_of_fp32_groups, state["weights"]):
            own.data.copy_(saved)


run = Run(options.folder, every_steps=5)
torch.manual_seed(run.mesh.rank)
run.track(model=engine.module, zero=Zero())
with run:
    for step in range(run.steps, 20):
        loss = engine(torch.randn(4, 8)).square().mean()
        engine.backward(loss)
        engine.step()
        run.step(loss)
        if options.kill and step == 12 and run.mesh.rank == 1 and not (options.folder / "killed").exists():
            (options.folder / "killed").touch()
            while not (options.folder / "checkpoints/step-00000010").exists():
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
if run.mesh.is_rank0:
    (options.folder / "weights.json").write_text(json.dumps([each.tolist() for each in model.parameters()]))
sys.exit(run.exit_code)
"""


@pytest.mark.skipif(not PACKAGES.is_dir(), reason="no DeepSpeed here: run make peers")
@pytest.mark.ranks
@pytest.mark.parametrize("stage", [1, pytest.param(2, marks=pytest.mark.soak)])
def test_zero_resumes_exactly_by_either_launcher(tmp_path: Path, stage: int) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    variables = environment(tmp_path) | {"DS_ACCELERATOR": "cpu", "CXX": "no-compiler", "CC": "no-compiler"}
    theirs = ("deepspeed.launcher.runner", "--num_gpus=2", f"--master_port={free_port()}")
    ours = ("trainyard_train", "run", "--nproc-per-node=2")
    for command in ((*theirs, "program.py", "calm"), (*ours, "program.py", "killed", "--kill")):
        arguments = [sys.executable, "-m", *command, f"--stage={stage}"]
        subprocess.run(arguments, cwd=tmp_path, env=variables, check=True)
    found = [json.loads((tmp_path / name / "weights.json").read_text()) for name in ("calm", "killed")]
    assert [each["step"] for each in events(tmp_path / "killed", "resumed")] == [10]
    assert found[0] == found[1]
