"""Trains a byte-level language model, sharded over all ranks by FSDP2: your own loop, with Run."""

import os
from pathlib import Path

import torch
from torch import nn
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from trainyard_train import Run

LENGTH, WIDTH = 64, 64


def windows() -> TensorDataset:
    """Return PyTorch's own source, which every image has, as windows of bytes."""
    files = sorted(Path(torch.__file__).parent.glob("nn/modules/*.py"))
    text = torch.tensor(list(b"".join(each.read_bytes() for each in files)[: 512 * (LENGTH + 1)]))
    return TensorDataset(text.view(512, LENGTH + 1))


class Decoder(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.embedding, self.head = nn.Embedding(256, WIDTH), nn.Linear(WIDTH, 256)
        self.layers = nn.ModuleList(nn.TransformerEncoderLayer(WIDTH, 4, batch_first=True) for _ in range(2))

    def forward(self, text: torch.Tensor) -> torch.Tensor:
        causal = nn.Transformer.generate_square_subsequent_mask(text.shape[1], device=text.device)
        hidden = self.embedding(text)
        for each in self.layers:
            hidden = each(hidden, src_mask=causal, is_causal=True)
        return self.head(hidden)


def main() -> None:
    run = Run(os.environ.get("TRAINYARD_RUN_DIR", "out"), every_steps=10)  # joins the launcher's ranks
    torch.manual_seed(1)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model = Decoder().to(device)
    for each in (*model.layers, model):
        fully_shard(each)
    optimizer, data = torch.optim.AdamW(model.parameters(), lr=1e-3), windows()
    loader = run.batches(DataLoader(data, batch_size=16, sampler=DistributedSampler(data, seed=1)))
    run.track(model=model, optimizer=optimizer)
    with run:  # loads the newest checkpoint
        for _ in run.epochs(3):
            for (text,) in loader:
                scores = model(text[:, :-1].to(device))
                loss = nn.functional.cross_entropy(scores.transpose(1, 2), text[:, 1:].to(device))
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                run.step(loss)
    run.exit()


if __name__ == "__main__":
    main()
