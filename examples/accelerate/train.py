"""Classifies handwritten digits with Accelerate: its usual loop, with Run."""

import os
import sys

import torch
from accelerate import Accelerator
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard_train.integrations.accelerate import run_of


def main() -> int:
    torch.manual_seed(1)
    images, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(digits))
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10))
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    accelerator = Accelerator(cpu=not torch.cuda.is_available())
    loader = DataLoader(data, batch_size=32, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    run = run_of(accelerator, os.environ.get("TRAINYARD_RUN_DIR", "out"), every_steps=20)
    loader = run.batches(loader)
    with run:  # loads the newest checkpoint
        for _ in run.epochs(5):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                accelerator.backward(loss)
                optimizer.step()
                run.step(loss)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main())
