"""Bare torchrun and DDP: the loop of PyTorch's own tutorial, with what is needed to start again.

`python -m torch.distributed.run --nproc-per-node=2 -m benchmarks.peers.ddp SETTINGS.json`
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from benchmarks.peers.reads import counted
from trainyard_train.config import TrainConfig, parse_config
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder
from trainyard_train.models.build import build_model


def main() -> None:
    """Train as the settings say; write one line per step, and the loss that both arms must share."""
    config = parse_config(json.loads(Path(sys.argv[1]).read_text()))
    torch.set_num_threads(config.threads)
    dist.init_process_group("gloo")
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = load_dataset(config.data, config.model.context, config.seed)
    order = GlobalOrder(len(data.train), config.seed)
    torch.manual_seed(config.seed)
    model = nn.parallel.DistributedDataParallel(build_model(config.model, data.num_classes))
    optimizer = torch.optim.SGD(
        model.parameters(),
        config.optim.lr,
        config.optim.momentum,
        0,
        config.optim.weight_decay,
        nesterov=True,
    )
    saved = config.run_dir / "checkpoint.pt"
    first = counted(lambda: _load(saved, model, optimizer), config.run_dir, rank)
    config.run_dir.mkdir(parents=True, exist_ok=True)
    log = (config.run_dir / f"steps-{rank}.jsonl").open("a", buffering=1)
    size = config.data.batch_size_per_rank
    for step in range(first, config.steps):
        begin = time.monotonic()
        batch = data.train.take(order.of_rank(step * size * world_size, size, rank))
        optimizer.zero_grad(set_to_none=True)
        loss = functional.cross_entropy(model(batch.inputs), batch.targets)
        loss.backward()
        optimizer.step()
        line = {"time": time.time(), "step": step + 1, "pid": os.getpid(), "loss": loss.item()}
        log.write(json.dumps(line) + "\n")
        time.sleep(max(0.0, config.pace_seconds - (time.monotonic() - begin)))
        _save(config, saved, model, optimizer, step + 1)
    dist.destroy_process_group()


def _load(path: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> int:
    if not path.exists():
        return 0
    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return int(state["step"])


def _save(
    config: TrainConfig, path: Path, model: nn.Module, optimizer: torch.optim.Optimizer, step: int
) -> None:
    if step % config.checkpoint.every_steps or dist.get_rank():
        return
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, path.with_suffix(".tmp"))
    path.with_suffix(".tmp").replace(path)
    with path.with_name("saves.jsonl").open("a") as log:
        log.write(json.dumps({"time": time.time(), "step": step}) + "\n")


if __name__ == "__main__":
    main()
