"""Spreading a model over the ranks."""

from __future__ import annotations

import torch
from torch import nn

from training.mesh import Mesh


def parallelize(model: nn.Module, mesh: Mesh, sample: torch.Tensor) -> nn.Module:
    """Replicate the model on every rank, with gradients averaged while the backward pass still runs (DDP).

    DDP orders its gradient buckets anew after the first backward pass, and the order of a sum over many
    ranks follows from the buckets. A run that resumes would thus add its first step's gradients in another
    order than the run that never stopped. One pass on a sample that counts for nothing settles the order
    before the first step of both.
    """
    model = model.to(mesh.device)
    if mesh.world_size == 1:
        return model
    replica = nn.parallel.DistributedDataParallel(
        model, device_ids=[mesh.device] if mesh.device.type == "cuda" else None
    )
    replica.eval()
    for _ in range(2):  # the new order takes effect when the next pass begins
        replica(sample.to(mesh.device)).sum().backward()
    replica.zero_grad(set_to_none=True)
    replica.train()
    return replica


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself, with the names of its own parameters."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model
