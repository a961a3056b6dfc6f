"""What the callback for Hugging Face's Trainer refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from engine.paths import REPOSITORY
from tests.training.foreign.programs import PACKAGES

TWICE = """
import sys
import torch
from transformers import Trainer, TrainingArguments
from trainyard_train.integrations.transformers import TrainyardCallback

arguments = TrainingArguments(output_dir=sys.argv[1], use_cpu=True, report_to="none")
trainer = Trainer(model=torch.nn.Linear(1, 1), args=arguments, train_dataset=[0])
trainer.add_callback(TrainyardCallback(trainer, sys.argv[1]))
trainer.add_callback(TrainyardCallback(trainer, sys.argv[1]))
"""


@pytest.mark.ranks
def test_a_second_callback_is_refused(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": f"{REPOSITORY}:{PACKAGES}"}
    command = [sys.executable, "-c", TWICE, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (ended.returncode, ended.stderr.splitlines()[-1]) == (
        2,
        "training: TrainyardCallback: this Trainer has one already; add one only",
    )
