"""Classifies handwritten digits by DistributedDataParallel: your own loop, with Run."""

import os
import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainyard_train import Run


def main() -> int:
    run = Run(os.environ.get("TRAINYARD_RUN_DIR", "out"), every_steps=20)  # joins the launcher's ranks
    torch.manual_seed(1)
    images, digits = load_digits(return_X_y=True)
    data = TensorDataset(torch.tensor(images, dtype=torch.float32) / 16, torch.tensor(digits))
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Dropout(0.1), nn.Linear(128, 10)).to(device)
    model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    sampler = DistributedSampler(data, seed=1)
    loader = run.batches(DataLoader(data, batch_size=32, sampler=sampler))
    run.track(model=model, optimizer=optimizer)
    with run:  # loads the newest checkpoint
        for epoch in run.epochs(5):
            sampler.set_epoch(epoch)
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs.to(device)), targets.to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main())
