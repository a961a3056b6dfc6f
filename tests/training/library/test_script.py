"""A program that uses `Run`, launched as all ranks of a node; a killed rank is restarted in place."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.training.launch import events
from trainyard_train.__main__ import main

PROGRAM = """
import atexit, json, os, signal, sys
from pathlib import Path

import torch
from torch import nn
from trainyard_train import Run

folder, fault = Path(sys.argv[1]), sys.argv[2]
run = Run(folder, every_steps=5)
torch.manual_seed(run.mesh.rank)
model = nn.parallel.DistributedDataParallel(nn.Sequential(nn.Linear(30, 30), nn.Dropout(0.2)))
optimizer = torch.optim.AdamW(model.parameters())
run.track(model=model, optimizer=optimizer)
atexit.register(lambda: (folder / f"ended-{run.mesh.rank}").write_text(str(torch.get_num_threads())))
with run:
    while run.steps < 20:
        loss = model(torch.randn(4, 30)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        run.step(loss)
        if fault != "calm" and run.steps == 13 and not (folder / "killed").exists():
            run.save()
            if run.mesh.rank == 1:
                (folder / "killed").touch()
                for file in folder.glob("checkpoints/step-00000013/rank-*"):
                    file.write_bytes(bytes(file.stat().st_size))  # damaged, so that reading it would fail
                if fault == "raise":
                    raise RuntimeError("an illegal memory access was encountered")
                os.kill(os.getpid(), signal.SIGKILL)
if run.mesh.is_rank0:
    (folder / "weights.json").write_text(json.dumps([each.tolist() for each in model.parameters()]))
sys.exit(run.exit_code)
"""


def started(folder: Path, *arguments: str) -> int:
    """Launch two ranks of a program; return the exit code."""
    (folder / "program.py").write_text(PROGRAM)
    command = [sys.executable, "-m", "trainyard_train", "run", "--nproc-per-node=2", "program.py", *arguments]
    variables = {name: value for name, value in os.environ.items() if name != "OMP_NUM_THREADS"}
    return subprocess.run(command, cwd=folder, env=variables, check=False).returncode


@pytest.mark.ranks
def test_a_rank_that_is_killed_or_raises_resumes_from_memory_and_no_bit_is_changed(tmp_path: Path) -> None:
    weights = []
    for name in ("calm", "kill", "raise"):
        assert started(tmp_path, name, name) == 0
        weights.append(json.loads((tmp_path / name / "weights.json").read_text()))
        assert [(tmp_path / name / f"ended-{rank}").read_text() for rank in range(2)] == ["1", "1"]
    for name in ("kill", "raise"):
        (resumed,) = events(tmp_path / name, "resumed")
        assert (resumed["step"], resumed["bytes_from_store"]) == (13, 0)
    assert weights[0] == weights[1] == weights[2]


def test_what_is_wrong_is_reported_before_anything_starts(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["run", "--restarts=-1", "nothing.py"]) == 2
    output = capsys.readouterr().err
    assert "program: got nothing.py; allowed: a file, or a module's name with -m" in output
    assert "--restarts: got -1; allowed: 0 or more" in output
