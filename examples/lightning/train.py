"""Trains Lightning's demo transformer with one callback."""

import os

import torch
from lightning import LightningModule, Trainer, seed_everything
from lightning.pytorch.demos import Transformer
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from trainyard_train.integrations.lightning import TrainyardCallback

WORDS, LENGTH = 64, 16


class Model(LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = Transformer(vocab_size=WORDS, ninp=64, nhead=2, nhid=64, nlayers=2)

    def training_step(self, batch: list[torch.Tensor]) -> torch.Tensor:
        text, target = batch[0][:, :-1], batch[0][:, 1:]
        loss = nn.functional.nll_loss(self.network(text, target), target.flatten())
        self.log("loss", loss, prog_bar=True)
        return loss

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


def main() -> None:
    seed_everything(1)
    text = TensorDataset(
        torch.arange(512 * (LENGTH + 1)).view(512, LENGTH + 1) % WORDS
    )  # replace it with yours
    loader = DataLoader(text, batch_size=16, shuffle=True)
    folder = os.environ.get("TRAINYARD_RUN_DIR", "out")
    ranks, world = (int(os.environ.get(name, "1")) for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    callback = TrainyardCallback(folder, every_steps=10)
    nodes = {"devices": ranks, "num_nodes": world // ranks}
    trainer = Trainer(max_epochs=3, logger=False, enable_progress_bar=False, callbacks=[callback], **nodes)
    trainer.fit(Model(), loader)


if __name__ == "__main__":
    main()
