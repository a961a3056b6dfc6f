"""Spreading a model over the ranks."""

from __future__ import annotations

import torch
from torch import nn

from training.config import Strategy
from training.mesh import Mesh


def parallelize(model: nn.Module, strategy: Strategy, mesh: Mesh, sample: torch.Tensor) -> nn.Module:
    """Spread a model as the strategy says; alone, a rank keeps it as it is.

    Args:
        model: with the same weights on every rank.
        strategy: `ddp` or `fsdp`.
        mesh: the ranks.
        sample: a batch of inputs, whose values do not matter.
    """
    model = model.to(mesh.device)
    if mesh.world_size == 1:
        return model
    return _replicate(model, mesh, sample) if strategy == "ddp" else _shard(model, mesh)


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself, with the names of its own parameters."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _replicate(model: nn.Module, mesh: Mesh, sample: torch.Tensor) -> nn.Module:
    """Keep the model whole on every rank, and average gradients while the backward pass still runs (DDP).

    DDP orders its gradient buckets anew after the first backward pass, and the order of a sum over many
    ranks follows from the buckets. A run that resumes would thus add its first step's gradients in another
    order than the run that never stopped. One pass on a sample that counts for nothing settles the order
    before the first step of both.
    """
    on_gpu = mesh.device.type == "cuda"
    replica = nn.parallel.DistributedDataParallel(model, device_ids=[mesh.device] if on_gpu else None)
    replica.eval()
    for _ in range(2):  # the new order takes effect when the next pass begins
        replica(sample.to(mesh.device)).sum().backward()
    replica.zero_grad(set_to_none=True)
    replica.train()
    return replica


def _shard(model: nn.Module, mesh: Mesh) -> nn.Module:
    """Cut each layer's parameters, gradients and moments over the ranks, whole only while in use (FSDP2)."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard  # seconds to import, so only where it is used

    devices = init_device_mesh(mesh.device.type, (mesh.world_size,), mesh_dim_names=("data",))
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=devices)
    fully_shard(model, mesh=devices)
    return model
