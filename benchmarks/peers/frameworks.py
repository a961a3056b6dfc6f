"""Peers: the same training with Accelerate and with Lightning, one step per call."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional
from torch.utils.data import IterableDataset

from trainyard_train.data.samples import Samples

Part = Callable[[int], Samples]
"""Returns a rank's part of the batch of a step, counted from 0."""


def by_accelerate(
    model: nn.Module, optimizer: torch.optim.Optimizer, part: Part
) -> Callable[[], torch.Tensor]:
    """Return what takes a step and returns its loss: the loop of Accelerate's own introduction."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    wrapped, stepper = accelerator.prepare(model, optimizer)
    taken = 0

    def step() -> torch.Tensor:
        nonlocal taken
        batch = part(taken)
        stepper.zero_grad()
        loss = functional.cross_entropy(wrapped(batch.inputs), batch.targets)
        accelerator.backward(loss)
        stepper.step()
        taken += 1
        return loss.detach()

    return step


def by_lightning(
    model: nn.Module, optimizer: torch.optim.Optimizer, part: Part
) -> Callable[[], torch.Tensor]:
    """Return what takes a step with Lightning's Trainer, without log, checkpoints and progress bar."""
    import lightning

    class Module(lightning.LightningModule):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.model = model

        def training_step(self, batch: tuple[torch.Tensor, torch.Tensor], _: int) -> torch.Tensor:
            loss = functional.cross_entropy(self.model(batch[0]), batch[1])
            handover.loss = loss.detach()
            return loss

        def configure_optimizers(self) -> torch.optim.Optimizer:
            return optimizer

    def fit() -> None:
        trainer = lightning.Trainer(
            accelerator="cpu",
            devices=torch.distributed.get_world_size(),
            strategy="ddp",
            max_steps=-1,
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(Module(), torch.utils.data.DataLoader(_Batches(part, handover), batch_size=None))

    handover = _Handover()
    threading.Thread(target=fit, daemon=True).start()
    handover.ended.acquire()  # it has requested its first batch

    def step() -> torch.Tensor:
        handover.begun.release()
        handover.ended.acquire()
        return handover.loss

    return step


@dataclass
class _Handover:
    """Hands control between Lightning's loop, which owns its steps, and the measurement."""

    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    ended: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    loss: torch.Tensor = field(default_factory=lambda: torch.tensor(0.0))


@dataclass
class _Batches(IterableDataset[Any]):
    """Gives Lightning one batch for each requested step."""

    part: Part
    handover: _Handover

    def __len__(self) -> int:
        return 1 << 40  # so that Lightning prefetches no batch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        taken = 0
        while True:
            self.handover.ended.release()
            self.handover.begun.acquire()
            batch = self.part(taken)
            taken += 1
            yield batch.inputs, batch.targets
