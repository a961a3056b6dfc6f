"""Memory under FSDP: no rank ever has the whole model, neither its weights nor its gradients."""

import ctypes
import importlib
import json
import os
import re
from pathlib import Path

import pytest
import torch

from benchmarks.gpu.tokens import write_shards
from tests.processes import free_port
from tests.training.launch import server
from trainyard_train.config import parse_config
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.launchers import process_group
from trainyard_train.models.build import build_model, layers_of
from trainyard_train.models.config import ModelConfig
from trainyard_train.parallelism.parallelize import parallelize
from trainyard_train.trainer import Trainer

MIB = 1 << 20
SIZES = {"144 MiB": (512, 12), "528 MiB": (1024, 11)}
"""Weights of a model → width and number of layers."""
RANKS = 2


@pytest.mark.parametrize("name", ["mlp", "convnet", "gpt"])
def test_layers_that_are_made_one_by_one_have_the_weights_of_the_whole(tmp_path: Path, name: str) -> None:
    config = ModelConfig.model_validate({"name": name, "hidden": 8, "heads": 2, "context": 8})
    torch.manual_seed(3)
    whole = build_model(config, 10)
    with torch.device("meta"):
        model = build_model(config, 10)
    torch.manual_seed(3)
    settings = parse_config({"run_dir": tmp_path})
    mesh = process_group.join(settings.timeouts, {})
    built = parallelize(model, layers_of(config, 10), settings, mesh=mesh)
    one, other = whole.state_dict(), built.state_dict()
    assert list(one) == list(other)
    assert all(torch.equal(one[key], other[key]) for key in one)


@pytest.mark.ranks
@pytest.mark.parametrize("size", ["144 MiB", pytest.param("528 MiB", marks=pytest.mark.soak)])
def test_a_rank_holds_its_shard_and_a_layer_and_no_whole_gradient(tmp_path: Path, size: str) -> None:
    """Two ranks measure their peak resident memory, less that of the moment before."""
    write_shards(str(tmp_path))
    port = free_port()
    ranks = [
        server.Process(target=_measure, args=(rank, port, tmp_path, *SIZES[size])) for rank in range(RANKS)
    ]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join(180)
    assert [each.exitcode for each in ranks] == [0] * RANKS
    for rank in range(RANKS):
        found = json.loads((tmp_path / f"rank-{rank}.json").read_text())
        whole, shard, layer = found["whole"], found["whole"] / RANKS, found["layer"]
        assert whole / MIB >= float(size.split()[0])
        room = 32 * MIB  # other memory of a process in a group
        assert found["built"] < shard + layer + room < whole, "its shard, and one layer at a time"
        assert found["parts"] - found["step"] < shard / 2, "a first micro-batch leaves no whole gradients"


def _measure(rank: int, port: int, folder: Path, width: int, layers: int) -> None:
    variables = {"RANK": rank, "WORLD_SIZE": RANKS, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port}
    os.environ.update({name: str(value) for name, value in variables.items()})
    torch.set_num_threads(1)
    config = parse_config(
        {
            "run_dir": folder / "run",
            "strategy": "fsdp",
            "model": {"name": "gpt", "hidden": width, "layers": layers, "heads": 8, "context": 8},
            "data": {"name": "text", "path": str(folder / "shards"), "batch_size_per_rank": 2},
            "optim": {"momentum": 0},
            "timeouts": {"silence": 100, "collective": 300},
        }
    )
    mesh = process_group.join(config.timeouts)
    importlib.import_module("torch.distributed.fsdp")  # its memory is not the model's

    _return_freed_memory()
    before = _resident()
    trainer = Trainer(config, mesh, PreemptionNotice(60))
    found = {"built": _peak() - before}
    trainer.prepare(0)
    for name, trainer.computation.micro_batches in (("step", 1), ("parts", 2)):
        _resident()
        trainer.take_step()
        found[name] = _peak() - before
    sizes = [4 * sum(each.numel() for each in layer.parameters()) for layer in trainer.model.children()]
    (folder / f"rank-{rank}.json").write_text(json.dumps({**found, "whole": sum(sizes), "layer": max(sizes)}))
    mesh.shutdown_barrier()
    os._exit(0)


def _return_freed_memory() -> None:
    """Make glibc return freed tensors to the kernel: it maps each by itself, not in its heap."""
    m_mmap_threshold = -3  # malloc.h
    assert ctypes.CDLL(None).mallopt(m_mmap_threshold, 1 << 16)


def _resident() -> int:
    """Return the resident memory in bytes, and reset the peak."""
    Path("/proc/self/clear_refs").write_text("5")
    return _status("VmRSS")


def _peak() -> int:
    return _status("VmHWM")


def _status(name: str) -> int:
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    assert found
    return 1024 * int(found[1])
