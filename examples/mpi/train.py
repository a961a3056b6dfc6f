"""Fits a regression on ranks that mpirun starts: gradients are averaged by hand, with Run."""

import os
import sys

import torch
import torch.distributed as dist
from torch import nn
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainyard_train import Run


def main() -> int:
    run = Run(os.environ.get("TRAINYARD_RUN_DIR", "out"), every_steps=20)  # joins mpirun's ranks
    torch.manual_seed(1)
    inputs = torch.randn(1024, 16)
    data = TensorDataset(inputs, inputs.sum(1, keepdim=True).sin())
    model = nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    sampler = DistributedSampler(data, seed=1)
    loader = run.batches(DataLoader(data, batch_size=32, sampler=sampler))
    run.track(model=model, optimizer=optimizer)
    with run:  # loads the newest checkpoint
        for epoch in run.epochs(5):
            sampler.set_epoch(epoch)
            for x, y in loader:
                loss = nn.functional.mse_loss(model(x), y)
                optimizer.zero_grad()
                loss.backward()
                for each in model.parameters():
                    dist.all_reduce(each.grad)
                    each.grad /= dist.get_world_size()
                optimizer.step()
                run.step(loss)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main())
