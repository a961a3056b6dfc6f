"""A user's training loop under `Run`, which tests start as the process of each rank."""

import json
import random
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from trainyard_train import Run

SAMPLES = 48
RESULT = "result.json"


class Noisy(Dataset[torch.Tensor]):
    """Samples that differ at each access, drawn from the generators of Python, NumPy and PyTorch."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((4,), index / SAMPLES) + torch.rand(4) + random.random() + np.random.rand()


def build(world_size: int, strategy: str) -> nn.Module:
    """Make a model with buffers and dropout, the same on all ranks."""
    torch.manual_seed(3)
    model: nn.Module = nn.Sequential(
        nn.Linear(4, 8), nn.Dropout(0.3), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)
    )
    if strategy == "ddp" and world_size > 1:
        return nn.parallel.DistributedDataParallel(model)
    if strategy == "fsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(model)
    if strategy == "hsdp":
        from torch.distributed.fsdp import fully_shard

        fully_shard(
            model, mesh=init_device_mesh("cpu", (2, world_size // 2), mesh_dim_names=("copy", "shard"))
        )
    if strategy == "tp":
        from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

        plan = {
            "0": ColwiseParallel(output_layouts=Replicate()),
            "4": RowwiseParallel(input_layouts=Replicate()),
        }
        parallelize_module(model, init_device_mesh("cpu", (world_size,), mesh_dim_names=("tensor",)), plan)
    return model


def loader_of(run: Run, settings: Mapping[str, Any]) -> DataLoader[torch.Tensor]:
    """Make a loader of two samples per batch: divided over the ranks, or drawn at random on each rank."""
    data, mesh = Noisy(), run.mesh
    sampler: DistributedSampler[torch.Tensor] | None = None
    if mesh.world_size > 1 or settings.get("shared"):
        parts = (1, 0) if settings.get("strategy") == "tp" else (mesh.world_size, mesh.rank)
        sampler = DistributedSampler(data, *parts, seed=5)
    return DataLoader(
        data,
        batch_size=settings.get("batch_size", 2),
        shuffle=sampler is None,
        sampler=sampler,
        num_workers=settings.get("workers", 0),
        multiprocessing_context="fork" if settings.get("workers") else None,  # others import PyTorch anew
        persistent_workers=bool(settings.get("persistent", False)),
    )


def train(run_dir: Path, settings: Mapping[str, Any]) -> int:
    """Train as one rank; return its exit code."""
    every_steps, store = settings.get("every_steps", 1), settings.get("store", "")
    run = Run(run_dir, every_steps=every_steps, store=store)
    seed = 3 if settings.get("strategy") == "tp" else 3 + run.mesh.rank
    for generator in (random.seed, np.random.seed):
        generator(seed)
    model = build(run.mesh.world_size, settings.get("strategy", "ddp"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=1, gamma=0.5)
    torch.manual_seed(seed)
    per_step = settings.get("per_step", 1)
    batches = run.batches(loader_of(run, settings), per_step=per_step)
    notes: dict[str, Any] = {"epochs": []}
    run.track(model=model, optimizer=optimizer, scheduler=scheduler, notes=notes)
    with run:
        for epoch in run.epochs(2):
            done = run.restored("done", 0)
            for number, batch in enumerate(batches, start=1):
                loss = model(batch).square().mean() / per_step
                loss.backward()
                if number % per_step == 0:
                    optimizer.step()
                    optimizer.zero_grad()
                    done += 1
                    run.step(loss * per_step, done=done)
                    if run.steps == settings.get("leave_after"):
                        run.notice.request()
            scheduler.step()
            notes["epochs"].append((epoch, optimizer.param_groups[0]["lr"], done))
    if not run.exit_code:
        _write_result(run, model, notes)
    return run.exit_code


def _write_result(run: Run, model: nn.Module, notes: Mapping[str, Any]) -> None:
    """Write the results to a file; a collective, so all ranks call it."""
    state = model.state_dict().items()
    whole = {name: each.full_tensor() if hasattr(each, "full_tensor") else each for name, each in state}
    if run.mesh.is_rank0:
        weights = {name: each.double().sum().item() for name, each in whole.items()}
        (run.run_dir / RESULT).write_text(json.dumps([weights, notes]))
