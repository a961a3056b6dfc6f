"""Programs in other versions of Python, PyTorch and the frameworks, killed and resumed with equal results.

`python -m tests.training.test_matrix [CELL …]` installs environments below `.trainyard/matrix` and prints the
answers for docs/status.md; the soak runs the cells that are installed.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.training.foreign.programs import TWO_RANKS

FOLDER = REPOSITORY / ".trainyard" / "matrix"
OLD = ("torch==2.6.0", "numpy==1.26.4", "transformers==4.46.3", "lightning==2.5.5", "accelerate==1.1.1")
NEW = ("torch", "numpy", "transformers", "lightning", "accelerate")
NO_STAGES, NO_FSDP = {"pipeline": "refused"}, {"fsdp": "fails"}  # PyTorch's own, on CPUs
CELLS = {
    "oldest": ("3.10", OLD, NO_STAGES | NO_FSDP),
    "2.11": ("3.12", ("torch==2.11.0", *NEW[1:]), NO_STAGES),
    "newest": ("3.13", NEW, {}),
    "3.14": ("3.14", NEW, {}),
}
"""Cell → Python, packages, and the answers that are others than `equal`."""
DIES = """
import os, signal, sys, time, torch
from pathlib import Path
from trainyard_train import Run
def step(self, *loss, of=Run.step, **carried):
    if self.steps == int(sys.argv[2]) and self.mesh.rank == self.mesh.world_size - 1:
        while not any(self.run_dir.glob("checkpoints/step-*")):
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGKILL)
    return of(self, *loss, **carried)
Run.step, folder = step, Path(sys.argv[1])
torch.set_num_threads(1)
def write(model):
    (folder / "result.json").write_text(repr([each.double().sum().item() for each in model.parameters()]))
"""
RANK = "from tests.training.library import pipeline, program\nsys.exit({}(folder, {}))"
MODEL = """
class Model(torch.nn.Linear):
    def forward(self, x, labels):
        return {"loss": torch.nn.functional.dropout(super().forward(x)).sub(labels).square().mean()}
torch.manual_seed(1)
pairs = [{"x": torch.randn(3), "labels": torch.randn(2)} for _ in range(48)]
model, loader = Model(3, 2), torch.utils.data.DataLoader(pairs, batch_size=4, shuffle=True)
"""
TRANSFORMERS = """
from transformers import Trainer, TrainingArguments
from trainyard_train.integrations.transformers import TrainyardCallback
arguments = TrainingArguments(str(folder), num_train_epochs=2, use_cpu=True, report_to=[], save_strategy="no")
trainer = Trainer(model, arguments, train_dataset=pairs)
trainer.add_callback(TrainyardCallback(trainer, folder, every_steps=1))
trainer.train()
write(model)
"""
LIGHTNING = """
from lightning.pytorch import LightningModule, Trainer
from trainyard_train.integrations.lightning import TrainyardCallback
class Module(Model, LightningModule):
    training_step = lambda self, batch, _: self(**batch)["loss"]
    configure_optimizers = lambda self: torch.optim.AdamW(self.parameters())
model, callbacks = Module(3, 2), [TrainyardCallback(folder, every_steps=1)]
Trainer(max_epochs=2, accelerator="cpu", logger=False, callbacks=callbacks).fit(model, loader)
write(model)
"""
_, _, GUIDE = (REPOSITORY / "docs/library.md").read_text().partition("to try:\n```python\n")
GUIDE = GUIDE.partition("```")[0].replace("    return", "    write(model)\n    return")
PROGRAMS = {
    "guide": GUIDE.replace('"/tmp/library"', "folder"),
    **{each: RANK.format("program.train", {"strategy": each}) for each in ("ddp", "fsdp")},
    "pipeline": RANK.format("pipeline.train", {}),
    "transformers": MODEL + TRANSFORMERS,
    "lightning": MODEL + LIGHTNING,
}


def tried(name: str, program: str, folder: Path) -> str:
    """Run a program to its end, and once killed and resumed; return `equal`, or what happened instead."""
    file = folder / "train.py"
    file.write_text(DIES + PROGRAMS[program])
    launcher = TWO_RANKS if program in ("ddp", "fsdp", "pipeline") else ()
    errors = ""
    for run_dir, die_at in (("whole", -1), ("killed", 13 if program == "guide" else 5), ("killed", -1)):
        (folder / run_dir).mkdir(exist_ok=True)
        command = [FOLDER / name / "bin" / "python", *launcher, file, folder / run_dir, str(die_at)]
        variables = os.environ | {"PYTHONPATH": f"{REPOSITORY}:{REPOSITORY / 'training/src'}"}
        errors += subprocess.run(command, env=variables, cwd=folder, capture_output=True, text=True).stderr
    if "with pipeline stages; allowed: 2.12 or newer" in errors:
        return "refused"
    results = [each.read_text() for each in sorted(folder.glob("*/result.json"))]
    if len(results) < 2 or '"event": "resumed"' not in (folder / "killed/metrics.jsonl").read_text():
        return "fails"
    return "equal" if results[0] == results[1] else "other results"


@pytest.mark.soak
@pytest.mark.parametrize("program", PROGRAMS)
@pytest.mark.parametrize("name", CELLS)
def test_a_cell_resumes_exactly_or_refuses(name: str, program: str, tmp_path: Path) -> None:
    if not (FOLDER / name / "bin" / "python").exists():
        pytest.skip(f"`python -m tests.training.test_matrix {name}` has not installed it")
    assert tried(name, program, tmp_path) == CELLS[name][2].get(program, "equal")


if __name__ == "__main__":
    for cell in sys.argv[1:] or CELLS:
        version, packages = CELLS[cell][:2]
        uv = (sys.executable, "-m", "uv")
        if subprocess.run([*uv, "venv", "--quiet", "--python", version, FOLDER / cell]).returncode:
            continue  # this host has no such Python
        needs = (*packages, "safetensors", "xxhash", "pydantic", "pytest")
        subprocess.run([*uv, "pip", "install", "--quiet", "--python", FOLDER / cell, *needs], check=True)
        for each in PROGRAMS:
            print(cell, each, tried(cell, each, Path(tempfile.mkdtemp())), flush=True)
