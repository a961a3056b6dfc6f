"""Peer: DDP training under torchrun with the loop of PyTorch's tutorial, which resumes from checkpoints of
`torch.save` or `dcp.async_save`.

`python -m torch.distributed.run --nproc-per-node=2 -m benchmarks.peers.ddp SETTINGS.json [dcp]`

With `dcp` it is tuned as ours is: a fused optimizer, gradients as views of the buckets, `dcp.async_save` by
all ranks with fsync, as ours does, and `dcp.load` into the tensors that exist.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from abc import ABC, abstractmethod
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn import functional

from benchmarks.peers.reads import counted
from trainyard_train.config import TrainConfig, parse_config
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder
from trainyard_train.elasticity import startup
from trainyard_train.models.build import build_model
from trainyard_train.observability.device import memory


def main() -> None:
    """Train by the settings; write one line per step, and the loss that both arms must share."""
    config, uses_dcp = parse_config(json.loads(Path(sys.argv[1]).read_text())), "dcp" in sys.argv
    torch.set_num_threads(config.threads)
    dist.init_process_group("gloo")
    with startup.deterministic(config.deterministic):
        _train(config, uses_dcp)
    dist.destroy_process_group()


def _train(config: TrainConfig, uses_dcp: bool) -> None:
    rank, world_size = dist.get_rank(), dist.get_world_size()
    data = load_dataset(config.data, config.model.context, config.seed)
    order = GlobalOrder(len(data.train), config.seed)
    torch.manual_seed(config.seed)
    model = nn.parallel.DistributedDataParallel(
        build_model(config.model, data.num_classes), gradient_as_bucket_view=uses_dcp
    )
    optimizer = torch.optim.SGD(
        model.parameters(),
        config.optim.lr,
        config.optim.momentum,
        0,
        config.optim.weight_decay,
        nesterov=True,
        fused=uses_dcp or None,
    )
    saves: SaveStrategy = (ByDcp if uses_dcp else ByTorch)(config, model, optimizer)
    first = counted(saves.load, config.run_dir, rank)
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
        log.write(json.dumps({**line, **memory(torch.device("cpu"))}) + "\n")
        time.sleep(max(0.0, config.pace_seconds - (time.monotonic() - begin)))
        if (step + 1) % config.checkpoint.every_steps == 0:
            saves.save(step + 1)


class SaveStrategy(ABC):
    """How a run saves its checkpoints and loads them."""

    def __init__(self, config: TrainConfig, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Take what is saved."""
        self.run_dir, self.model, self.optimizer = config.run_dir, model, optimizer

    @abstractmethod
    def load(self) -> int:
        """Continue from the newest checkpoint; returns its step, 0 without one."""

    @abstractmethod
    def save(self, step: int) -> None:
        """Save a step; all ranks call it."""

    def note(self, step: int) -> None:
        """Write down, at rank 0, that a checkpoint can be loaded from now on."""
        if dist.get_rank() == 0:
            with (self.run_dir / "saves.jsonl").open("a") as log:
                log.write(json.dumps({"time": time.time(), "step": step}) + "\n")


class ByTorch(SaveStrategy):
    """`torch.save` by rank 0, as in the tutorial."""

    @property
    def _path(self) -> Path:
        return self.run_dir / "checkpoint.pt"

    def load(self) -> int:
        if not self._path.exists():
            return 0
        state = torch.load(self._path, weights_only=True)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])
        return int(state["step"])

    def save(self, step: int) -> None:
        if dist.get_rank():
            return
        state = {"step": step, "model": self.model.state_dict(), "optimizer": self.optimizer.state_dict()}
        staged = self._path.with_suffix(".tmp")
        torch.save(state, staged)
        staged.replace(self._path)
        self.note(step)


class ByDcp(SaveStrategy):
    """`dcp.async_save` and `dcp.load`; one save at a time, the newest that is whole remains meanwhile."""

    _saving: Future[Any] | None = None

    def __init__(self, config: TrainConfig, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        """Make the group that saves have for themselves."""
        super().__init__(config, model, optimizer)
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        self._group = group

    def load(self) -> int:
        import torch.distributed.checkpoint as dcp

        found = newest(self.run_dir)
        if found is None:
            return 0
        for parameter in self.model.parameters():  # slots are created without a step, as in our loader
            self.optimizer.state[parameter]["momentum_buffer"] = torch.zeros_like(parameter)
        with torch.no_grad():
            dcp.load(self._tensors(), storage_reader=dcp.FileSystemReader(found))
        return step_of(found)

    def save(self, step: int) -> None:
        import torch.distributed.checkpoint as dcp

        if self._saving:
            self._saving.result()
        latest = newest(self.run_dir)
        for old in self.run_dir.glob("dcp-*") if dist.get_rank() == 0 else ():
            if old != latest:
                shutil.rmtree(old)
        writer = dcp.FileSystemWriter(self.run_dir / f"dcp-{step:08d}", sync_files=True)
        saving = dcp.async_save(self._tensors(), storage_writer=writer, process_group=self._group)
        assert isinstance(saving, Future)
        saving.add_done_callback(lambda _: self.note(step))
        self._saving = saving

    def _tensors(self) -> dict[str, Any]:
        named = dict(self.model.named_parameters())
        moments = {name: self.optimizer.state[p]["momentum_buffer"] for name, p in named.items()}
        weights = {f"model.{name}": p.detach() for name, p in named.items()}
        return weights | {f"optimizer.{name}": each for name, each in moments.items()}


def newest(run_dir: Path) -> Path | None:
    """The newest checkpoint of `dcp.async_save` that is whole: the metadata are written last."""
    found = sorted(path.parent for path in run_dir.glob("dcp-*/.metadata"))
    return found[-1] if found else None


def step_of(checkpoint: Path) -> int:
    """The step that it is of."""
    return int(checkpoint.name.removeprefix("dcp-"))


if __name__ == "__main__":
    main()
