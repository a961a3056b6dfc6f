"""A small network learns this file by heart: `python -m trainyard_train.demo.program FOLDER [EPOCHS]`.

Kill it at any time: the next start continues, and ends with the same weights. The lines with `run` do that.
"""

import sys
from pathlib import Path

import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard_train import Run


def main(folder: str, epochs: int = 5) -> int:
    """Train; returns the exit code: 0, or 75 after a SIGTERM, with a checkpoint."""
    run = Run(folder, every_steps=20)
    torch.manual_seed(1)
    torch.set_num_threads(1)  # every start adds in the same order
    text = torch.tensor(list(Path(__file__).read_bytes())).unfold(0, 17, 1)
    loader = run.batches(DataLoader(TensorDataset(text[:, :-1], text[:, -1]), batch_size=32, shuffle=True))
    read = nn.Sequential(nn.Embedding(256, 16), nn.Flatten(), nn.Linear(256, 512), nn.ReLU())
    model = nn.Sequential(read, nn.Dropout(0.1), nn.Linear(512, 256))
    optimizer = torch.optim.AdamW(model.parameters())
    run.track(model=model, optimizer=optimizer)
    with run:  # loads the newest checkpoint
        for epoch in run.epochs(epochs):
            for inputs, targets in loader:
                loss = nn.functional.cross_entropy(model(inputs), targets)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                if run.steps % 25 == 24:
                    print(f"epoch {epoch + 1}, step {run.steps + 1}: loss {loss:.4f}", flush=True)
                run.step(loss)
    return run.exit_code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], *map(int, sys.argv[2:])))
