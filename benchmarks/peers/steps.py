"""Measures on two ranks the time of training steps of our trainer and of peers (DDP, Accelerate, Lightning),
alternating: A B C D E F F E D C B A.

DDP runs in three arms: with PyTorch's defaults; tuned as ours is (channels last, fused optimizer, gradients
as views of the buckets); and tuned but without deterministic algorithms, which measures their cost. All other
arms use deterministic algorithms, as `trainyard_train.train` does. Threads are the same for all.
All arms run in the same processes within seconds, so other load on the host affects all alike.
`python -m torch.distributed.run --standalone --nproc-per-node=2 -m benchmarks.peers.steps SETTINGS BLOCKS`
writes the seconds of each block of steps, by the clock and of CPU, and each arm's losses, to `measured.json`
beside the settings.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from benchmarks.peers import reach
from benchmarks.peers.frameworks import Part, by_accelerate, by_lightning
from trainyard_train.config import TrainConfig, load_config
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder
from trainyard_train.data.samples import Samples
from trainyard_train.elasticity import startup
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers.process_group import join
from trainyard_train.models.build import build_model
from trainyard_train.trainer import Trainer

STEPS = 10
"""Steps in a block."""
FREE = "free"
"""The arm without deterministic algorithms."""
COMPARED = 20
"""Number of first steps whose losses are compared; `benchmarks.throughput` leaves their times out."""
Step = Callable[[], torch.Tensor]
"""Takes a step of this rank; returns its loss."""


def main() -> None:
    """Measure; rank 0 writes the results."""
    settings, blocks = Path(sys.argv[1]), int(sys.argv[2])
    reach()
    startup.defer_compiler()
    config = load_config(settings)
    torch.set_num_threads(config.threads)
    mesh = join(config.timeouts)
    trainer = Trainer(config, mesh, PreemptionNotice(60))
    trainer.prepare(time.time())
    arms: dict[str, Callable[[], float]] = {"ours": lambda: _ours(trainer)}
    peers = {
        "bare": _bare,
        "tuned": _tuned,
        FREE: _tuned,
        "accelerate": by_accelerate,
        "lightning": by_lightning,
    }
    for name, build in peers.items():
        arms[name] = _compared(build(*_ingredients(config, tuned=build is _tuned)))
    seconds: dict[str, list[float]] = {name: [] for name in arms}
    cpu_seconds: dict[str, list[float]] = {name: [] for name in arms}
    losses: dict[str, list[float]] = {name: [] for name in arms}
    for name in (*arms, *reversed(arms)) * blocks:
        dist.barrier()
        begin, cpu_begin = time.monotonic(), time.process_time()
        with startup.deterministic(name != FREE):
            losses[name] += [arms[name]() for _ in range(STEPS)]
        seconds[name].append(time.monotonic() - begin)
        cpu_seconds[name].append(time.process_time() - cpu_begin)
    measured = {"seconds": seconds, "cpu_seconds": cpu_seconds, "losses": losses}
    if mesh.is_rank0:  # rank 0 also writes the metrics, so the other rank does less
        settings.with_name("measured.json").write_text(json.dumps(measured))
    dist.barrier()
    os._exit(0)


def _ours(trainer: Trainer) -> float:
    """Take a step of our trainer and return the loss, which it reads at each step on a CPU."""
    trainer.take_step()
    assert trainer.loss is not None
    return trainer.loss


def _ingredients(config: TrainConfig, *, tuned: bool) -> tuple[nn.Module, torch.optim.Optimizer, Part]:
    """Create the same model, optimizer and data for a peer: tuned as ours are, or with PyTorch's defaults."""
    rank, world_size, size = dist.get_rank(), dist.get_world_size(), config.data.batch_size_per_rank
    data = load_dataset(config.data, config.model.context, config.seed)
    order = GlobalOrder(len(data.train), config.seed)
    torch.manual_seed(config.seed)
    model: nn.Module = build_model(config.model, data.num_classes)
    if tuned:
        model = model.to(memory_format=torch.channels_last)
    rates = config.optim
    optimizer = torch.optim.SGD(
        model.parameters(),
        rates.lr,
        rates.momentum,
        weight_decay=rates.weight_decay,
        nesterov=True,
        fused=tuned or None,
    )

    def part(step: int) -> Samples:
        return data.train.take(order.of_rank(step * size * world_size, size, rank))

    return model, optimizer, part


def _bare(model: nn.Module, optimizer: torch.optim.Optimizer, part: Part) -> Step:
    """The loop of PyTorch's own tutorial."""
    return _loop(nn.parallel.DistributedDataParallel(model), optimizer, part)


def _tuned(model: nn.Module, optimizer: torch.optim.Optimizer, part: Part) -> Step:
    """The loop of PyTorch's tutorial, with gradients as views of the exchanged buckets."""
    return _loop(nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True), optimizer, part)


def _loop(parallel: nn.Module, optimizer: torch.optim.Optimizer, part: Part) -> Step:
    taken = 0

    def step() -> torch.Tensor:
        nonlocal taken
        batch = part(taken)
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(parallel(batch.inputs), batch.targets)
        loss.backward()
        optimizer.step()
        taken += 1
        return loss.detach()

    return step


def _compared(step: Step) -> Callable[[], float]:
    """Return a step that averages the loss over the ranks in the first steps only, since that costs time."""
    taken = 0

    def compared() -> float:
        nonlocal taken
        loss = step()
        taken += 1
        if taken > COMPARED:
            return 0.0
        mean = loss.clone()
        dist.all_reduce(mean)
        return mean.item() / dist.get_world_size()

    return compared


if __name__ == "__main__":
    main()
