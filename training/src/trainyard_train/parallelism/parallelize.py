"""Applies data parallelism (FSDP or DDP) to a model, and before it recomputation and compilation to its
layers.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import torch
from torch import nn

from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism.buckets import order_buckets_of
from trainyard_train.parallelism.config import Precision
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.tensors import is_distributed, local_of, part_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

    from trainyard_train.config import TrainConfig


def parallelize(
    model: nn.Sequential,
    layers: Iterable[tuple[str, nn.Module]],
    config: TrainConfig,
    *,
    mesh: Mesh,
    blank: bool = False,
) -> nn.Module:
    """Distribute a model over the ranks by the configuration; a single rank keeps it as it is.

    Args:
        model: on the device `meta`: shapes without weights.
        layers: its layers with their weights, the same on every rank; iterating makes one layer at a time,
            since a rank has memory for its shard and one layer.
        config: strategy, precision and mesh.
        mesh: the ranks.
        blank: whether not to initialize the weights, since a checkpoint will replace them all.

    Raises:
        ConfigError: the ranks cannot be divided so, or there is no compiler.
    """
    if config.parallel.shard and mesh.world_size % config.parallel.shard:
        allowed = f"a divisor of the {mesh.world_size} ranks"
        raise ConfigError([f"parallel.shard: got {config.parallel.shard}; allowed: {allowed}"])
    sharded = config.strategy == "fsdp" and mesh.world_size > 1
    # FSDP supports the default memory format only.
    if not sharded and _may_be_channels_last(model, mesh.device):
        model = model.to(memory_format=torch.channels_last)  # faster for convolutions
    if config.recompute:
        _recompute(model)
    if config.compile:
        _compile(model, mesh.device)
    if sharded:
        _shard(model, _devices(mesh, config.parallel.shard), config.precision)
    model._apply(lambda tensor: _room_for(tensor, mesh.device))
    own = dict(model.named_children())
    for name, layer in () if blank else layers:
        _copy(layer, own[name])
        del layer  # before the next one is made
    return model if sharded or mesh.world_size == 1 else _replicate(model, mesh, blank)


def _may_be_channels_last(model: nn.Module, device: torch.device) -> bool:
    """Whether its convolutions are safe with channels last.

    With fewer than 8 output channels their gradients corrupt the heap on CPUs with AVX2 and without AVX-512
    (PyTorch 2.15 on an AMD EPYC: a bare forward and backward pass of a ResNet of 4 channels crashes; with 8
    channels, the usual order, or without oneDNN it does not).
    """
    narrow = (each.out_channels < 8 for each in model.modules() if isinstance(each, nn.Conv2d))
    return device.type != "cpu" or not any(narrow)


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP cuts it."""
    return hasattr(model, "set_requires_all_reduce")


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself, with the original names of its parameters."""
    return model.module if isinstance(model, nn.parallel.DistributedDataParallel) else model


def _room_for(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Allocate a module's tensors like `Module.to_empty`, which imports half of PyTorch's compiler."""
    if is_distributed(tensor):
        return torch.empty_like(tensor, device=device)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


@torch.no_grad()
def _copy(layer: nn.Module, target: nn.Module) -> None:
    """Fill each weight with this rank's part of it."""
    values = dict([*layer.named_parameters(), *layer.named_buffers()])
    for name, tensor in [*target.named_parameters(), *target.named_buffers()]:
        local_of(tensor).copy_(part_of(values[name], tensor))


def _devices(mesh: Mesh, shard: int) -> DeviceMesh:
    """All ranks, or so many for each copy of the weights (HSDP)."""
    from torch.distributed.device_mesh import init_device_mesh

    sizes = (mesh.world_size // shard, shard) if shard else (mesh.world_size,)
    names = ("replicate", "shard")[-len(sizes) :]
    return init_device_mesh(mesh.device.type, sizes, mesh_dim_names=names)


def _recompute(model: nn.Module) -> None:
    from torch.utils.checkpoint import checkpoint

    for layer in model.children():
        if any(True for _ in layer.parameters()):
            layer.forward = partial(checkpoint, layer.forward, use_reentrant=False)


def _compile(model: nn.Module, device: torch.device) -> None:
    if device.type == "cpu" and not shutil.which("g++"):
        raise ConfigError(
            ["compile: got true; on a CPU it needs the C++ compiler g++; install it, or set false"]
        )
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            layer.compile()


def _replicate(model: nn.Module, mesh: Mesh, blank: bool) -> nn.Module:
    """Keep the model whole on every rank, and average gradients while the backward pass still runs (DDP)."""
    replica = nn.parallel.DistributedDataParallel(
        model,
        device_ids=[mesh.device] if mesh.device.type == "cuda" else None,
        gradient_as_bucket_view=True,
        init_sync=not blank,
    )
    order_buckets_of(replica)
    return replica


def _shard(model: nn.Module, devices: DeviceMesh, precision: Precision) -> None:
    """Cut each layer's parameters, gradients and moments over the ranks, whole only while in use (FSDP2).

    Over two dimensions of the mesh, the first keeps copies and the second cuts (HSDP). In lower precision a
    layer is gathered in it, and gradients are reduced in float32; with autocast instead, a rank
    would gather all of float32, and keep an unsharded copy of each layer.
    """
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # seconds, so only where it is used

    lower = None if precision == "float32" else getattr(torch, precision)
    inside = MixedPrecisionPolicy(param_dtype=lower, reduce_dtype=torch.float32 if lower else None)
    for layer in model.children():
        if any(True for _ in layer.parameters()):
            fully_shard(layer, mesh=devices, mp_policy=inside)
    outside = replace(inside, output_dtype=torch.float32 if lower else None)
    fully_shard(model, mesh=devices, mp_policy=outside)
