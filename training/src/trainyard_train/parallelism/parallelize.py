"""Applies pipeline, tensor and data parallelism (FSDP or DDP) to a model, and recomputation and compilation
to its layers.

The order matters: the layers are divided into stages, each layer's weights over the ranks that compute it
together, then come activation checkpointing and compilation inside a layer, and last data parallelism.
"""

from __future__ import annotations

import shutil
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

import torch
from torch import nn

from trainyard_train.config_base import ConfigError
from trainyard_train.parallelism.config import ParallelSettings, Precision
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.tensors import is_distributed, local_of, part_of

if TYPE_CHECKING:
    from torch.distributed.device_mesh import DeviceMesh

CARRIED: Final = 5
"""Number of values of a step that ranks sum along with the gradients (see `update.Totals`)."""
_ALIGNED: Final = 16
"""The carried values are padded to a multiple of this (64 bytes), so that gradients keep their alignment in
DDP's buckets."""


def parallelize(
    model: nn.Sequential,
    layers: Iterable[tuple[str, nn.Module]],
    plan: Mapping[str, str],
    config: ParallelSettings,
    *,
    mesh: Mesh,
    blank: bool = False,
) -> nn.Module:
    """Distribute a model over the ranks by the configuration; a single rank keeps it as it is.

    Args:
        model: on the device `meta`: shapes without weights.
        layers: its layers with their weights, the same on every rank; iterating makes one layer at a time,
            since a rank has memory for its shard and one layer.
        plan: layer → `column` or `row`: how tensor parallelism divides its weight.
        config: strategy, precision and mesh.
        mesh: the ranks.
        blank: whether not to initialize the weights, since a checkpoint will replace them all.

    Raises:
        ConfigError: the ranks, or the model, cannot be divided so.
    """
    _check(config, mesh)
    stage = _stage(model, mesh)
    sharded = config.strategy == "fsdp" and mesh.world_size > 1
    devices = _devices(mesh, config) if sharded or mesh.tensor > 1 else None
    if devices and mesh.tensor > 1:
        _divide_layers(stage, plan, devices["tensor"])
    # FSDP and pipeline stages support the default memory format only.
    if not sharded and mesh.pipeline == 1 and _may_be_channels_last(stage, mesh.device):
        stage = stage.to(memory_format=torch.channels_last)  # faster for convolutions
    if config.recompute:
        _recompute(stage)
    if config.compile:
        _compile(stage, mesh.device)
    if devices and sharded:
        over = devices["replicate", "shard"] if config.parallel.shard else devices["shard"]
        _shard(stage, over, config.precision)
    stage._apply(lambda tensor: _room_for(tensor, mesh.device))
    if not blank:
        _fill(stage, layers)
    whole = sharded or mesh.data_size == 1 or mesh.pipeline > 1
    return stage if whole else _replicate(stage, mesh, blank)


def _may_be_channels_last(stage: nn.Module, device: torch.device) -> bool:
    """Whether its convolutions are safe with channels last.

    With fewer than 8 output channels their gradients corrupt the heap on CPUs with AVX2 and without AVX-512
    (PyTorch 2.15 on an AMD EPYC: a bare forward and backward pass of a ResNet of 4 channels crashes; with 8
    channels, the usual order, or without oneDNN it does not).
    """
    narrow = (each.out_channels < 8 for each in stage.modules() if isinstance(each, nn.Conv2d))
    return device.type != "cpu" or not any(narrow)


def is_sharded(model: nn.Module) -> bool:
    """Whether FSDP cuts it."""
    return hasattr(model, "set_requires_all_reduce")


def unwrap(model: nn.Module) -> nn.Module:
    """The model itself, with the original names of its parameters."""
    carried = carrying(model)
    return carried.model if carried else model


def carrying(model: nn.Module) -> Carrying | None:
    """The `Carrying` wrapper of a model that `_replicate` made, if there is one."""
    inside = model.module if isinstance(model, nn.parallel.DistributedDataParallel) else None
    return inside if isinstance(inside, Carrying) else None


class Carrying(nn.Module):
    """A model, and a few numbers that ranks sum along with its gradients.

    A separate all-reduce would cost each step the time of one with a hundred times more numbers.
    """

    def __init__(self, model: nn.Module, count: int, device: torch.device) -> None:
        """Args: count: of the numbers."""
        super().__init__()
        # Roughly the order in which gradients become ready; the names do not matter.
        self._last_to_first = nn.ParameterList(reversed(list(model.parameters())))
        self.model = model
        self._count = count
        self._padding = torch.zeros(-count % _ALIGNED, device=device)
        self._parcel = nn.Parameter(torch.zeros(count + len(self._padding), device=device))
        """Parameter outside of the model and the optimizer, whose gradient DDP averages with the others."""

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Run the model."""
        outputs: torch.Tensor = self.model(inputs)
        return outputs

    def backward(self, loss: torch.Tensor, numbers: torch.Tensor) -> None:
        """Run a backward pass in which ranks sum the gradients, and these numbers (as float32)."""
        self._parcel.grad = None
        gradient = torch.cat([numbers.float(), self._padding])
        torch.autograd.backward([loss, self._parcel], [None, gradient])

    def sums(self, ranks: int) -> torch.Tensor:
        """The numbers of the last pass, summed over the given ranks: the same bits on all; float64."""
        assert self._parcel.grad is not None
        return self._parcel.grad[: self._count].double() * ranks


def _check(config: ParallelSettings, mesh: Mesh) -> None:
    if config.strategy == "ddp" and mesh.data_size > 1 and mesh.pipeline == 1 and mesh.tensor > 1:
        problem = (
            f"strategy: got ddp with parallel.tensor {mesh.tensor} and {mesh.data_size} parts of the batch;"
            " allowed: fsdp, or no more ranks than tensor × pipeline"
        )
        raise ConfigError([problem])
    if config.parallel.shard and mesh.data_size % config.parallel.shard:
        allowed = f"a divisor of the {mesh.data_size} ranks that share the data"
        raise ConfigError([f"parallel.shard: got {config.parallel.shard}; allowed: {allowed}"])


def _fill(model: nn.Module, layers: Iterable[tuple[str, nn.Module]]) -> None:
    """Fill each weight with this rank's part of it."""
    own = dict(model.named_children())
    for name, layer in layers:
        if name in own:
            _copy(layer, own[name])
        del layer  # before the next one is made


def _room_for(tensor: torch.Tensor, device: torch.device) -> torch.Tensor:
    """Allocate a module's tensors like `Module.to_empty`, which imports half of PyTorch's compiler."""
    if is_distributed(tensor):
        return torch.empty_like(tensor, device=device)
    return torch.empty_strided(tensor.shape, tensor.stride(), dtype=tensor.dtype, device=device)


@torch.no_grad()
def _copy(layer: nn.Module, target: nn.Module) -> None:
    values = dict([*layer.named_parameters(), *layer.named_buffers()])
    for name, tensor in [*target.named_parameters(), *target.named_buffers()]:
        local_of(tensor).copy_(part_of(values[name], tensor))


def _devices(mesh: Mesh, config: ParallelSettings) -> DeviceMesh:
    from torch.distributed.device_mesh import init_device_mesh

    shard = config.parallel.shard or mesh.data_size
    sizes = (mesh.pipeline, mesh.data_size // shard, shard, mesh.tensor)
    names = ("pipeline", "replicate", "shard", "tensor")
    return init_device_mesh(mesh.device.type, sizes, mesh_dim_names=names)


def _stage(model: nn.Sequential, mesh: Mesh) -> nn.Sequential:
    """This rank's part of the layers, which keep their names: parts of about as many weights each."""
    if mesh.pipeline == 1:
        return model
    blocks: list[list[tuple[str, nn.Module]]] = [[]]  # a layer with weights, and those without that follow
    weights = [0]
    for name, layer in model.named_children():
        size = sum(parameter.numel() for parameter in layer.parameters())
        if size and weights[-1]:
            blocks.append([])
            weights.append(0)
        blocks[-1].append((name, layer))
        weights[-1] += size
    spare = len(blocks) - mesh.pipeline
    if spare < 0:
        allowed = f"up to {len(blocks)}, the layers with weights"
        raise ConfigError([f"parallel.pipeline: got {mesh.pipeline}; allowed: {allowed}"])
    own, stage = [], -1
    for index, block in enumerate(blocks):
        middle = (sum(weights[:index]) + weights[index] / 2) / sum(weights)
        stage = min(max(int(middle * mesh.pipeline), index - spare), stage + 1)  # none is left empty
        if stage == mesh.stage:
            own += block
    return nn.Sequential(OrderedDict(own))


def _divide_layers(model: nn.Module, plan: Mapping[str, str], devices: DeviceMesh) -> None:
    """Cut weights by column, then by row, so that each pair of layers needs one all-reduce (Megatron)."""
    from torch.distributed.tensor.parallel import (
        ColwiseParallel,
        ParallelStyle,
        RowwiseParallel,
        parallelize_module,
    )

    styles: dict[str, type[ParallelStyle]] = {"column": ColwiseParallel, "row": RowwiseParallel}
    here = {name for name, _ in model.named_modules()}
    parallelize_module(model, devices, {name: styles[kind]() for name, kind in plan.items() if name in here})


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
    """Keep the model whole on every rank, and average gradients while the backward pass still runs (DDP).

    DDP orders its gradient buckets anew after the first backward pass, and the order of a sum over many
    ranks follows from the buckets. A run that resumes would thus add its first step's gradients in another
    order than the run that never stopped. So it is given the order before the first step, as it does for
    ranks that have run out of data: that of its parameters, which `Carrying` gives it from last to first.
    """
    on_gpu = mesh.device.type == "cuda"
    replica = nn.parallel.DistributedDataParallel(
        Carrying(model, CARRIED, mesh.device),
        device_ids=[mesh.device] if on_gpu else None,
        gradient_as_bucket_view=True,
        init_sync=not blank,
    )
    replica.reducer._push_all_rebuilt_params()
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
