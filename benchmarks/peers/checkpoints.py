"""Measures on two ranks what a save costs training (time blocked, time until durable, wall and CPU time) with
our saver, with `dcp.async_save`, and without a save, alternating.

The arm that saves nothing gives the time of a step in the same round: the cost of a save is what its steps
take beyond that. Steps are taken until the save is durable, so that all of its work is included.
`python -m torch.distributed.run --nproc-per-node=2 -m benchmarks.peers.checkpoints FOLDER ROUNDS`
writes the measurements to FOLDER/measured.json.
"""

from __future__ import annotations

import json
import math
import os
import shutil
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from trainyard_train.checkpointing.checkpoint import Manifest, Retention
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.saver import Saved, Saver
from trainyard_train.checkpointing.state import State
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.launchers.process_group import join
from trainyard_train.parallelism.mesh import Mesh

WIDTH, LAYERS, BATCH = 1024, 4, 32
"""Size of the model: 4 million weights, with Adam's moments 50 MB."""
STEPS = 15
"""Minimum number of steps from a save on."""


@dataclass
class Bench:
    """A training on which a save is timed."""

    mesh: Mesh
    model: nn.Module
    optimizer: torch.optim.Optimizer
    folder: Path

    def step(self) -> float:
        """Take one step of training; returns its seconds."""
        begin = time.monotonic()
        self.optimizer.zero_grad()
        self.model(torch.randn(BATCH, WIDTH)).square().mean().backward()
        self.optimizer.step()
        return time.monotonic() - begin

    def measure(self, save: Callable[[int], Future[Any]], number: int) -> dict[str, float]:
        """Save, and train on: how long that took by the clock and of CPU, and when the save was durable.

        What the peer saved before is deleted first, since a user's run would do it beside the training.
        """
        if self.mesh.is_rank0:
            for old in self.folder.glob("peer-*"):
                shutil.rmtree(old)
        dist.barrier()
        durable: list[float] = []
        begin, cpu_begin = time.monotonic(), time.process_time()
        saved = save(number)
        saved.add_done_callback(lambda _: durable.append(time.monotonic()))
        blocked = time.monotonic() - begin
        steps = 0
        while steps < STEPS or not self._all_ranks_agree(bool(durable)):
            self.step()
            steps += 1
        taken = {"total": time.monotonic() - begin, "cpu": time.process_time() - cpu_begin, "steps": steps}
        result = saved.result()  # ours continues after the commit, to delete what is superseded
        seconds = blocked + result.seconds if isinstance(result, Saved) else durable[0] - begin
        return {**taken, "blocked": blocked, "durable": seconds}

    def _all_ranks_agree(self, mine: bool) -> bool:
        """Whether a condition holds on all ranks, which must take the same number of steps."""
        count = torch.tensor(int(mine))
        dist.all_reduce(count)
        return int(count) == self.mesh.world_size


def main() -> None:
    """Measure; rank 0 writes the results."""
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    torch.set_num_threads(1)
    mesh = join(TimeoutConfig(collective=300))
    torch.manual_seed(0)
    layers = [part for _ in range(LAYERS) for part in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]
    model = nn.parallel.DistributedDataParallel(nn.Sequential(*layers))
    bench = Bench(mesh, model, torch.optim.AdamW(model.parameters(), lr=1e-4), folder)
    for _ in range(5):
        bench.step()
    arms = {"ours": _ours(bench), "peer": _peer(bench), "none": _nothing}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in arms}
    for number, arm in enumerate((*arms, *reversed(arms)) * (rounds + 1)):
        taken = bench.measure(arms[arm], number)
        if number >= 2 * len(arms):  # the first round warms all up
            measured[arm].append(taken)
    if mesh.is_rank0:
        (folder / "measured.json").write_text(json.dumps(measured))
    dist.barrier()
    os._exit(0)


def _nothing(number: int) -> Future[Any]:
    """Save nothing, at once."""
    done: Future[Any] = Future()
    done.set_result(None)
    return done


def _ours(bench: Bench) -> Callable[[int], Future[Any]]:
    module = bench.model.module
    assert isinstance(module, nn.Module)
    state = State(module, bench.optimizer, bench.mesh)
    saver = Saver(FolderStore(bench.folder / "ours", Retention(last=1)), bench.mesh)
    beside = ThreadPoolExecutor(1)

    def with_clean_up(saved: Future[Saved]) -> Saved:
        result = saved.result()
        saver.wait_for_clean_up(math.inf)  # its deletions count in this round, not in the next one
        return result

    def save(number: int) -> Future[Any]:
        snapshot = state.capture(Manifest(number, 0, bench.mesh.world_size, {}, {}, {}))
        return beside.submit(with_clean_up, saver.start(snapshot))

    return save


def _peer(bench: Bench) -> Callable[[int], Future[Any]]:
    """Return what saves by `dcp.async_save` in a thread, with fsync of its files, as ours does."""
    from torch.distributed.checkpoint.state_dict import get_state_dict

    group = dist.new_group(backend="gloo")
    assert isinstance(group, dist.ProcessGroup)

    def save(number: int) -> Future[Any]:
        path = bench.folder / f"peer-{number}"
        weights, moments = get_state_dict(bench.model, bench.optimizer)
        writer = dcp.FileSystemWriter(path, sync_files=True)
        done = dcp.async_save(
            {"model": weights, "optim": moments}, storage_writer=writer, process_group=group
        )
        assert isinstance(done, Future)
        return done

    return save


if __name__ == "__main__":
    main()
