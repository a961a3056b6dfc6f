"""GPU benchmark: seconds to save and load a checkpoint of 18 GB (training blocked, until durable, load from
disk, load from the node's memory), against `torch.distributed.checkpoint`.

The state has 3 billion parameters and their moments in bfloat16. Ours is captured into pinned memory files,
as the node's agent keeps them, and loaded once from these and once from the disk. Every load starts from
zeros, and must restore the saved state.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from torch import nn

from benchmarks.figures import Figure, Repeats
from benchmarks.gpu import hardware
from trainyard_train.checkpointing.checkpoint import Manifest
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.saver import Saver
from trainyard_train.checkpointing.state import State
from trainyard_train.checkpointing.tensor_files import as_bytes
from trainyard_train.elasticity import node_memory
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.parallelism.mesh import Mesh

WIDTH, LAYERS = (8192, 45) if hardware.ON_GPU else (64, 3)
SLOTS = ("exp_avg", "exp_avg_sq")


def measure() -> list[Figure]:
    """Save and load by both."""
    state = _state()
    checksums = _checksums(state)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        ours, bytes_from_store = _ours(state, Path(folder) / "ours", checksums)
        shutil.rmtree(Path(folder) / "ours")
        peer = _peer(state, Path(folder) / "peer", checksums)
    size = sum(each.nbytes for _, each in state._tensors()) / 1e9
    what = f"{size:.3g} GB on {hardware.where()}"
    claims = {
        "blocked": (f"training stands still for a save, {what}", peer["save"], 0.25),
        "save": (f"until a save is durable, {what}", peer["save"], 1.0),
        "load": (f"load, verified, {what}", peer["load"], 1.0),
        "memory": (f"load from the node's memory, verified, {what}", peer["load"], 1.0),
    }
    return [
        *(
            Figure(claim, Repeats("trainyard", "s", (ours[key],)), at_most, Repeats("dcp", "s", (seconds,)))
            for key, (claim, seconds, at_most) in claims.items()
        ),
        Figure("bytes that the last one read", Repeats("trainyard", "B", (float(bytes_from_store),)), 0),
    ]


def _state() -> State:
    torch.manual_seed(7)
    with hardware.DEVICE:
        layers = [nn.Linear(WIDTH, WIDTH, bias=False, dtype=torch.bfloat16) for _ in range(LAYERS)]
    model = nn.Sequential(*layers)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        slots = {slot: torch.randn_like(parameter, requires_grad=False) for slot in SLOTS}
        optimizer.state[parameter] = {"step": torch.ones(()), **slots}
    memory = NodeMemory.of(environment=node_memory.environment(node_memory.create(1), 0))
    return State(model, optimizer, Mesh(0, 1, hardware.DEVICE, "node", dist.HashStore()), memory)


def _ours(state: State, root: Path, checksums: list[int]) -> tuple[dict[str, float], int]:
    store, taken = FolderStore(root), {}
    saver = Saver(store, state.mesh, state.memory)
    for step in (1, 2):  # the first allocates the memory, and the second can fall back to it
        begin = time.monotonic()
        snapshot = state.capture(Manifest(step, 0, 1, {}, {}, {}))
        hardware.wait()
        taken["blocked"] = time.monotonic() - begin
        saver.save(snapshot)
        taken["save"] = time.monotonic() - begin
        saver.wait_for_clean_up(60)
        if step == 1:
            shutil.rmtree(root)  # the disk may have no space for two
    finder = Finder(store, saver.mesh, state.memory)
    held = finder.newest({})
    taken["memory"] = _load(state, checksums, lambda: finder.load({}, state.restore, held))
    bytes_from_store = held[0].held.bytes_from_store if held[0] else -1
    other = Finder(store, saver.mesh, NodeMemory())
    found = store.open(2), list[str]()
    taken["load"] = _load(state, checksums, lambda: other.load({}, state.restore, found))
    return taken, bytes_from_store


def _peer(state: State, root: Path, checksums: list[int]) -> dict[str, float]:
    tensors = dict(state._tensors())
    begin = time.monotonic()
    dcp.save(tensors, storage_writer=dcp.FileSystemWriter(root, sync_files=True), no_dist=True)
    save = time.monotonic() - begin
    reader = dcp.FileSystemReader(root)
    return {
        "save": save,
        "load": _load(state, checksums, lambda: dcp.load(tensors, storage_reader=reader, no_dist=True)),
    }


def _load(state: State, checksums: list[int], load: Callable[[], object]) -> float:
    """Seconds of a load, which must restore the saved state."""
    with torch.no_grad():
        for _, tensor in state._tensors():
            tensor.zero_()
    hardware.wait()
    begin = time.monotonic()
    with torch.no_grad():
        load()
    hardware.wait()
    seconds = time.monotonic() - begin
    if _checksums(state) != checksums:
        raise ValueError("what was loaded is not what was saved")
    return seconds


def _checksums(state: State) -> list[int]:
    return [int(as_bytes(tensor.detach()).sum(dtype=torch.int64)) for _, tensor in state._tensors()]
