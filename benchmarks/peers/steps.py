"""Two ranks that take steps with our trainer and with bare DDP, in turn: A B B A, in blocks of steps.

Taken in the same processes and within seconds, so that what else the machine does touches both alike.
`python -m torch.distributed.run --standalone --nproc-per-node=2 -m benchmarks.peers.steps SETTINGS BLOCKS`
writes the seconds of each block, by the clock and of CPU, and each arm's losses, to `measured.json` beside
the settings.
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

from training import startup
from training.config import TrainConfig, load_config
from training.data import GlobalOrder, load_dataset
from training.mesh import join
from training.models import build_model
from training.preemption import Notice
from training.trainer import Trainer

STEPS = 10
"""In a block."""
COMPARED = 20
"""Steps at whose losses is looked, before any time is taken."""


def main() -> None:
    """Measure, and let rank 0 write it down."""
    settings, blocks = Path(sys.argv[1]), int(sys.argv[2])
    startup.defer_compiler()
    config = load_config(settings)
    torch.set_num_threads(config.threads)
    mesh = join(config.timeouts)
    trainer = Trainer(config, mesh, Notice(60))
    trainer.prepare(time.time())
    arms = {"ours": lambda: trainer.take_step().loss, "peer": _bare(config)}
    seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    cpu_seconds: dict[str, list[float]] = {"ours": [], "peer": []}
    losses: dict[str, list[float]] = {"ours": [], "peer": []}
    for arm in ("ours", "peer", "peer", "ours") * blocks:
        dist.barrier()
        begin, cpu_begin = time.monotonic(), time.process_time()
        losses[arm] += [arms[arm]() for _ in range(STEPS)]
        seconds[arm].append(time.monotonic() - begin)
        cpu_seconds[arm].append(time.process_time() - cpu_begin)
    measured = {"seconds": seconds, "cpu_seconds": cpu_seconds, "losses": losses}
    if mesh.leads:  # which also writes the metrics: the other rank does less
        settings.with_name("measured.json").write_text(json.dumps(measured))
    dist.barrier()
    os._exit(0)


def _bare(config: TrainConfig) -> Callable[[], float]:
    """The loop of PyTorch's own tutorial, which tells its loss in its first steps alone, to be compared."""
    rank, world_size, size = dist.get_rank(), dist.get_world_size(), config.data.batch_size_per_rank
    data = load_dataset(config.data, config.model.context, config.seed)
    order = GlobalOrder(len(data.train), config.seed)
    torch.manual_seed(config.seed)
    model = nn.parallel.DistributedDataParallel(build_model(config.model, data.num_classes))
    rates = config.optim
    optimizer = torch.optim.SGD(
        model.parameters(), rates.lr, rates.momentum, weight_decay=rates.weight_decay, nesterov=True
    )
    taken = 0

    def step() -> float:
        nonlocal taken
        batch = data.train.take(order.of_rank(taken * size * world_size, size, rank))
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(batch.inputs), batch.targets)
        loss.backward()
        optimizer.step()
        taken += 1
        if taken > COMPARED:
            return 0.0
        mean = loss.detach().clone()
        dist.all_reduce(mean)
        return mean.item() / world_size

    return step


if __name__ == "__main__":
    main()
