"""A training loop over pipeline stages under `Run`: one stage per rank; only the last rank has the loss."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B
from torch.utils.data import DataLoader, TensorDataset

from tests.training.library.program import RESULT, SAMPLES
from trainyard_train import Run


class LayerStage(nn.Module):
    """The layers of one stage, named by their number in the whole model."""

    def __init__(self, first: int, count: int) -> None:
        super().__init__()
        layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Dropout(0.1)) for _ in range(first + count)]
        self.layers = nn.ModuleDict({str(first + i): each for i, each in enumerate(layers[first:])})

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            values = layer(values)
        return values


def train(run_dir: Path, settings: Mapping[str, Any]) -> int:
    """Train as one rank; return its exit code."""
    run = Run(run_dir, every_steps=1)
    rank, world_size = run.mesh.rank, run.mesh.world_size
    torch.manual_seed(3)
    model = LayerStage(2 * rank, 2)
    stage = PipelineStage(model, rank, world_size, run.mesh.device)
    schedule = Schedule1F1B(stage, 2, loss_fn=nn.functional.mse_loss)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    data = TensorDataset(torch.randn(SAMPLES, 4, generator=torch.Generator().manual_seed(5)))
    order = torch.Generator().manual_seed(6)
    batches = run.batches(DataLoader(data, batch_size=4, shuffle=True, generator=order))
    run.track(model=model, optimizer=optimizer)
    torch.manual_seed(7 + rank)
    with run:
        for _ in run.epochs(2):
            for (inputs,) in batches:
                losses: list[torch.Tensor] = []
                if rank == 0:
                    schedule.step(inputs)
                else:
                    schedule.step(target=inputs.flip(1), losses=losses)
                optimizer.step()
                optimizer.zero_grad()
                run.step(torch.stack(losses).mean() if losses else None)
    if not run.exit_code:
        (run_dir / f"rank-{rank}.json").write_text(
            json.dumps({name: each.tolist() for name, each in model.state_dict().items()})
        )
        torch.distributed.barrier()
        if rank == 0:
            texts = [(run_dir / f"rank-{each}.json").read_text() for each in range(world_size)]
            (run_dir / RESULT).write_text("\n".join(texts))
    return run.exit_code
