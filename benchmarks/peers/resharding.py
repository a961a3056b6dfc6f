"""One rank of the resharding benchmark: saves a checkpoint, or loads it under another layout and measures
time and peak memory, with our `Saver` or PyTorch DCP.

The peer is tuned as ours is: it gets the optimizer's slots as ours makes them, without the step that
`get_state_dict` takes to have them, and loads in place, with nothing copied afterwards.
`python -m torch.distributed.run --nproc-per-node=N -m benchmarks.peers.resharding save|load ours|peer
ddp|fsdp FOLDER MIB` saves or loads so many MiB in all; a load writes FOLDER/RANK.json.
"""

from __future__ import annotations

import json
import os
import sys
import time
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from trainyard_train.checkpointing.checkpoint import Manifest
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.saver import Saver
from trainyard_train.checkpointing.state import State
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.launchers.process_group import join
from trainyard_train.tensors import is_distributed, local_of, offset_of

WIDTH = 2048
"""Width of a layer: it has 16 MiB of weights, and 32 MiB of moments."""
SLOTS = ("exp_avg", "exp_avg_sq")
MIB = 1 << 20
LAYER = 3 * 4 * WIDTH * WIDTH // MIB


def main() -> None:
    """Save, or load and measure."""
    action, arm, layout, folder, mib = (
        sys.argv[1],
        sys.argv[2],
        sys.argv[3],
        Path(sys.argv[4]),
        int(sys.argv[5]),
    )
    torch.set_num_threads(1)
    mesh = join(TimeoutConfig(collective=300))
    with torch.device("meta"):
        layers = [nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(-(-mib // LAYER))]
    model = nn.Sequential(*layers)
    if layout == "fsdp":
        devices = init_device_mesh("cpu", (mesh.world_size,))
        for layer in layers:
            fully_shard(layer, mesh=devices)
    model.to_empty(device="cpu")
    state = State(model, torch.optim.AdamW(model.parameters()), mesh)
    if action == "save":
        _save(arm, state, folder)
    else:
        _load(arm, state, folder)
    dist.barrier()
    os._exit(0)


def _save(arm: str, state: State, folder: Path) -> None:
    _make_slots(state)
    with torch.no_grad():
        for name, tensor in state._tensors():
            local_of(tensor).copy_(_expected(name, tensor))
    if arm == "ours":
        saver = Saver(FolderStore(folder / arm), state.mesh)
        for step in (1, 2):  # with an older one to fall back to, nothing is read before it is loaded
            saver.save(state.capture(Manifest(step, 0, state.mesh.world_size, {}, {}, {})))
    else:
        dcp.save(dict(state._tensors()), storage_writer=dcp.FileSystemWriter(folder / arm, sync_files=True))


def _load(arm: str, state: State, folder: Path) -> None:
    """Load, see that all is as it was saved, and write down what it took."""
    finder = Finder(FolderStore(folder / "ours"), state.mesh, NodeMemory())
    dist.barrier()
    before, begin = _memory("VmRSS"), time.monotonic()
    Path("/proc/self/clear_refs").write_text("5")  # the peak counts from now on; see proc(5)
    if arm == "ours":
        finder.load({}, state.restore)
    else:
        _make_slots(state)
        dcp.load(dict(state._tensors()), storage_reader=dcp.FileSystemReader(folder / arm))
    seconds, peak = time.monotonic() - begin, _memory("VmHWM") - before
    own = sum(local_of(tensor).nbytes for _, tensor in state._tensors())
    for name, tensor in state._tensors():
        if not local_of(tensor).equal(_expected(name, tensor)):
            raise ValueError(f"{arm}: {name} is not what was saved")
    measured = {"peak": peak, "own": own, "seconds": seconds}
    (folder / f"{state.mesh.rank}.json").write_text(json.dumps(measured))


def _make_slots(state: State) -> None:
    for parameter in state.model.parameters():
        slots = {slot: torch.zeros_like(parameter, requires_grad=False) for slot in SLOTS}
        state.optimizer.state[parameter] = {"step": torch.zeros(()), **slots}


def _expected(name: str, tensor: torch.Tensor) -> torch.Tensor:
    """This rank's part of a tensor as it was saved."""
    generator = torch.Generator().manual_seed(zlib.crc32(name.encode()))
    whole = torch.rand(tensor.shape, generator=generator)
    if not is_distributed(tensor):
        return whole
    first, rows = offset_of(tensor)[0], len(local_of(tensor))
    return whole[first : first + rows]


def _memory(key: str) -> int:
    """Read a field of /proc/self/status, in bytes; resident memory includes mapped files."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith(f"{key}:"))


if __name__ == "__main__":
    main()
