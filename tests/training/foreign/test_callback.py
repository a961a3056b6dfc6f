"""The callbacks for Hugging Face's Trainer and for Lightning: what they refuse, and what they restore."""

import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.processes import TIMEOUT_SECONDS
from tests.training.foreign.forks import Forks
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.config_base import ConfigError
from trainyard_train.integrations.accelerate import require_all_ranks_of

TWO_CALLBACKS = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from trainyard_train.integrations.transformers import TrainyardCallback

arguments = TrainingArguments(output_dir=sys.argv[1], use_cpu=True, report_to="none")
trainer = Trainer(model=torch.nn.Linear(1, 1), args=arguments, train_dataset=[0])
trainer.add_callback(TrainyardCallback(trainer, sys.argv[1]))
trainer.add_callback(TrainyardCallback(trainer, sys.argv[1]))
"""

STOPS_EARLY = """
import os, signal, sys
import torch
from transformers import EarlyStoppingCallback, Trainer, TrainerCallback, TrainingArguments, set_seed
from transformers.modeling_outputs import SequenceClassifierOutput
from trainyard_train.integrations.transformers import TrainyardCallback

class Model(torch.nn.Linear):
    def forward(self, x, labels):
        logits = super().forward(x)
        return SequenceClassifierOutput(loss=torch.nn.functional.cross_entropy(logits, labels), logits=logits)

class Dies(TrainerCallback):
    def on_evaluate(self, args, state, control, **_):
        if state.global_step == 4 and int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)

set_seed(1)
pairs = [{"x": torch.randn(3), "labels": torch.tensor(0)} for _ in range(8)]
arguments = TrainingArguments(
    sys.argv[1], use_cpu=True, report_to="none", num_train_epochs=9, per_device_train_batch_size=8,
    eval_strategy="epoch", save_strategy="epoch", load_best_model_at_end=True, learning_rate=0,
)
early = EarlyStoppingCallback(early_stopping_patience=4)
trainer = Trainer(Model(3, 2), arguments, train_dataset=pairs, eval_dataset=pairs, callbacks=[early, Dies()])
settings = {"every_steps": 1, "keep_last": 1, "keep_best": {"metric": "eval_loss"}}
trainer.add_callback(TrainyardCallback(trainer, sys.argv[1], **settings))
loss = trainer.train().training_loss
assert abs(loss - trainer.state.best_metric) < 1e-6, (loss, trainer.state.best_metric)  # they are all alike
print("stopped at", trainer.state.global_step, "of", early.early_stopping_patience_counter)
"""
"""The loss never improves after the first epoch."""


IN_LIGHTNING = """
import sys
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from trainyard_train import Run
from trainyard_train.integrations.lightning import TrainyardCallback

callbacks = [TrainyardCallback(sys.argv[1]) for _ in range(int(sys.argv[2]))]
run = Run(sys.argv[1]) if len(callbacks) == 1 else None
Trainer(accelerator="cpu", logger=False, callbacks=callbacks).fit(BoringModel())
"""

COUNTS = """
import os, signal, sys
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from trainyard_train.integrations.lightning import TrainyardCallback

class Counts(BoringModel):
    seen = 0

    def training_step(self, batch, batch_idx):
        if self.seen == 5 and int(sys.argv[2]):
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1
        return super().training_step(batch, batch_idx)

    def validation_step(self, batch, batch_idx):
        self.log("batches", float(self.seen))

    def on_save_checkpoint(self, checkpoint):
        assert "layer.weight" in checkpoint["state_dict"]
        checkpoint["seen"] = self.seen

    def on_load_checkpoint(self, checkpoint):
        self.seen = checkpoint["seen"]

keep_best = {"metric": "batches", "mode": "min"}
callback = TrainyardCallback(sys.argv[1], every_steps=1, keep_last=1, keep_best=keep_best)
quiet = {"logger": False, "enable_progress_bar": False, "val_check_interval": 3}
trainer = Trainer(max_steps=9, accelerator="cpu", callbacks=[callback], **quiet)
trainer.fit(model := Counts())
print("seen", model.seen)
"""


EPOCH_METRICS = """
import os, signal, sys, time
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.demos.boring_classes import BoringModel
from trainyard_train.integrations.lightning import TrainyardCallback

class Logs(BoringModel):
    seen, values = 0, {}

    def __init__(self):
        super().__init__()
        self.register_buffer("ended", torch.zeros(()))

    def training_step(self, batch, batch_idx):
        if self.seen == int(sys.argv[2]):
            while not os.path.exists(f"{sys.argv[1]}/checkpoints/step-{self.seen:08}"):
                time.sleep(0.01)
            os.kill(os.getpid(), signal.SIGKILL)
        self.seen += 1
        self.log("mean", batch_idx / 3, on_epoch=True, batch_size=batch_idx + 1)
        for name in ("sum", "max", "min"):
            self.log(name, batch_idx / 3, on_step=False, on_epoch=True, reduce_fx=name)
        return super().training_step(batch, batch_idx)

    def on_train_batch_end(self, *_):
        self.ended += 1
        self.log("late", 1.0, on_step=False, on_epoch=True, reduce_fx="sum")

    def on_train_epoch_end(self):
        self.values = {name: value.item() for name, value in self.trainer.callback_metrics.items()}

callback = TrainyardCallback(sys.argv[1], every_steps=1)
quiet = {"logger": False, "enable_progress_bar": False, "limit_train_batches": 8, "limit_val_batches": 0}
Trainer(max_epochs=2, accelerator="cpu", callbacks=[callback], **quiet).fit(model := Logs())
assert "on_train_batch_end" not in vars(model)
print("ended", model.ended.item(), "with", sorted(model.values.items()))
"""


def end_of(forks: Forks, program: str, folder: Path, *arguments: str) -> tuple[int, str]:
    """Run a program to its end; return its exit code and the last line of its output."""
    (folder / "mpi4py.py").write_text('raise ImportError("there is no MPI")')
    file, log = folder / "program.py", folder / "log"
    file.write_text(program)
    code = forks.start(file, [str(folder / "run"), *arguments], log).wait(TIMEOUT_SECONDS)
    return code, log.read_text().splitlines()[-1]


def steps_in(folder: Path) -> list[int]:
    return open_store(str(folder / "run" / "checkpoints")).committed()


@pytest.mark.ranks
def test_a_second_callback_is_refused(tmp_path: Path, forks: Forks) -> None:
    assert end_of(forks, TWO_CALLBACKS, tmp_path) == (
        2,
        "training: TrainyardCallback: this Trainer has one already; add one only",
    )


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("number", "message"),
    [
        ("2", "TrainyardCallback: this Trainer has one already; give it one only"),
        (
            "1",
            "run_dir: got {run}, but this process has a run in {run} already; allowed: one, by a callback or",
        ),
    ],
)
def test_lightning_takes_one_callback_alone(tmp_path: Path, forks: Forks, number: str, message: str) -> None:
    code, line = end_of(forks, IN_LIGHTNING, tmp_path, number)
    assert code == 2
    assert line.startswith("training: " + message.format(run=tmp_path / "run"))


@pytest.mark.ranks
def test_a_trainer_killed_in_an_evaluation_stops_as_early_as_another(tmp_path: Path, forks: Forks) -> None:
    assert end_of(forks, STOPS_EARLY, tmp_path, "1")[0] == -signal.SIGKILL
    assert end_of(forks, STOPS_EARLY, tmp_path, "0") == (0, "stopped at 5 of 4")
    assert steps_in(tmp_path) == [5, 1], "of equal losses, the first one is kept"


@pytest.mark.ranks
def test_what_a_lightning_module_adds_to_a_checkpoint_is_restored(tmp_path: Path, forks: Forks) -> None:
    assert end_of(forks, COUNTS, tmp_path, "1")[0] == -signal.SIGKILL
    assert end_of(forks, COUNTS, tmp_path, "0") == (0, "seen 9")
    assert steps_in(tmp_path) == [9, 3], "the third step has the smallest value of all validations"


@pytest.mark.ranks
@pytest.mark.parametrize("batch", ["12", "8"], ids=["within an epoch", "at its beginning"])
def test_lightnings_metrics_of_an_epoch_survive_a_kill(tmp_path: Path, forks: Forks, batch: str) -> None:
    (tmp_path / "other").mkdir()
    undisturbed = end_of(forks, EPOCH_METRICS, tmp_path / "other", "-1")
    assert undisturbed[1].startswith("ended 16.0 with [('late', 8.0), ")
    assert end_of(forks, EPOCH_METRICS, tmp_path, batch)[0] == -signal.SIGKILL
    assert end_of(forks, EPOCH_METRICS, tmp_path, "-1") == undisturbed


def test_the_sum_of_the_losses_in_an_older_trainers_loop_continues() -> None:
    from trainyard_train.integrations.transformers import TrainyardCallback  # takes seconds

    callback = TrainyardCallback.__new__(TrainyardCallback)
    callback._trainer, callback._sum_to_restore = SimpleNamespace(), torch.tensor(2.0)
    total = torch.tensor(1.0)
    assert [callback._wrap_log(torch.Tensor.item)(total) for _ in range(2)] == [3, 3]
    assert callback._trainer._tr_loss is total, "which is saved with the step"


@pytest.mark.training
def test_ranks_that_would_train_apart_are_refused() -> None:
    """On CPUs, Accelerate and Lightning join a launcher's ranks by a setting only."""
    run: Any = SimpleNamespace(mesh=SimpleNamespace(world_size=2))
    require_all_ranks_of(SimpleNamespace(num_processes=2), run)
    with pytest.raises(ConfigError, match=r"got 1 of 2 ranks.* ACCELERATE_USE_CPU=true"):
        require_all_ranks_of(SimpleNamespace(num_processes=1), run)
