"""Checkpoints in a node's memory: they outlive their rank, and only the right one is loaded."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from torch import nn

from trainyard_train.checkpointing.checkpoint import Manifest
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.saver import Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.state import State
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.elasticity import node_memory
from trainyard_train.elasticity.node_memory import NodeMemory, available_bytes
from trainyard_train.parallelism.mesh import Mesh


@pytest.fixture
def descriptors() -> Iterator[tuple[int, ...]]:
    """The memory files of an agent with two ranks."""
    found = node_memory.create(2)
    yield found
    for each in found:
        os.close(each)


def rank_of(descriptors: tuple[int, ...], rank: int = 0, limit_gib: float | None = None) -> NodeMemory:
    """Return the node memory as a rank has it that has just started."""
    return NodeMemory.of(limit_gib, node_memory.environment(descriptors, rank))


class TrainingRank:
    """A rank that trains, saves and loads; a new one replaces it after a failure."""

    def __init__(self, root: Path, memory: NodeMemory) -> None:
        torch.manual_seed(1)
        self.model = nn.Linear(40, 50)
        mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
        self.state = State(self.model, torch.optim.SGD(self.model.parameters()), mesh, memory)
        self.saver = Saver(FolderStore(root), mesh, memory)
        self.finder = Finder(self.saver.store, mesh, memory)

    def capture(self, step: int) -> Snapshot:
        with torch.no_grad():
            self.model.weight.fill_(step)
        return self.state.capture(Manifest(step, 0, 1, {}, {}, {}))

    def save(self, step: int) -> None:
        self.saver.save(self.capture(step))

    def load(self) -> tuple[int, int]:
        """Load; return the step of the weights, and how many bytes were read from the store."""
        checkpoint, damages, _ = self.finder.load({}, self.state.restore)
        assert checkpoint
        assert damages == []
        assert self.model.weight.eq(checkpoint.manifest.step).all()
        return checkpoint.manifest.step, checkpoint.held.bytes_from_store


def damage(root: Path, step: int) -> None:
    """Overwrite a checkpoint's file in the store, so that reading it fails."""
    path = root / f"step-{step:08d}" / file_name(0)
    path.write_bytes(bytes(path.stat().st_size))


@pytest.mark.parametrize("captured_after", [False, True])
def test_a_rank_that_died_at_any_moment_resumes_from_memory_alone(
    tmp_path: Path, descriptors: tuple[int, ...], captured_after: bool
) -> None:
    failed = TrainingRank(tmp_path, rank_of(descriptors))
    failed.save(1)
    failed.save(2)
    if captured_after:
        failed.capture(3)
    damage(tmp_path, 2)
    assert TrainingRank(tmp_path, rank_of(descriptors)).load() == (2, 0)


def test_ranks_that_fail_overwrite_nothing_committed(tmp_path: Path, descriptors: tuple[int, ...]) -> None:
    TrainingRank(tmp_path, rank_of(descriptors)).save(1)
    damage(tmp_path, 1)
    for _ in range(4):
        rank = TrainingRank(tmp_path, rank_of(descriptors))
        assert rank.load() == (1, 0)
        rank.capture(2)


def test_memory_of_an_older_step_is_not_the_newest(tmp_path: Path, descriptors: tuple[int, ...]) -> None:
    TrainingRank(tmp_path, rank_of(descriptors)).save(1)
    TrainingRank(tmp_path, NodeMemory()).save(2)  # as on another node
    step, from_store = TrainingRank(tmp_path, rank_of(descriptors)).load()
    assert step == 2
    assert from_store > 8000


@pytest.mark.parametrize("at", [20, 2000])
def test_altered_memory_is_read_from_the_store(tmp_path: Path, descriptors: tuple[int, ...], at: int) -> None:
    """A bit of the header, or of a block."""
    TrainingRank(tmp_path, rank_of(descriptors)).save(1)
    byte = os.pread(descriptors[0], 1, at)
    os.pwrite(descriptors[0], bytes([byte[0] ^ 1]), at)
    step, from_store = TrainingRank(tmp_path, rank_of(descriptors)).load()
    assert step == 1
    assert from_store > 8000


def test_all_ranks_of_a_node_find_what_each_captured(tmp_path: Path, descriptors: tuple[int, ...]) -> None:
    """Under DDP each rank needs what the others wrote."""
    TrainingRank(tmp_path, rank_of(descriptors)).save(1)
    damage(tmp_path, 1)
    assert TrainingRank(tmp_path, rank_of(descriptors, rank=1)).load() == (1, 0)


@pytest.mark.parametrize(
    ("limit_mib", "files"), [(7.9, 2), (4, 2), (3.9, 1), (2, 1), (1.9, 0), (0, 0), (None, 2)]
)
def test_a_limit_counts_all_files(descriptors: tuple[int, ...], limit_mib: float | None, files: int) -> None:
    """Each of two ranks captures 1 MiB."""
    memory = rank_of(descriptors, 0, None if limit_mib is None else limit_mib / 1024)
    for _ in range(3):
        assert (memory.room(1 << 20) is None) == (not files)
        memory.commit()
    assert sorted(os.fstat(each).st_size for each in descriptors[:2]) == [0] * (2 - files) + [1 << 20] * files


def test_where_memory_is_short_one_file_is_retained_and_the_other_freed(
    descriptors: tuple[int, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    memory = rank_of(descriptors)
    for _ in range(2):
        assert memory.room(1000)
        memory.commit()
    monkeypatch.setattr(node_memory, "available_bytes", lambda: 7999)
    assert memory.room(2000)
    assert sorted(os.fstat(each).st_size for each in descriptors[:2]) == [0, 2000]


@pytest.mark.parametrize(
    ("limit", "used", "cached", "free"),
    [("max", 0, 0, 8192), ("6144", 4096, 1024, 3072), ("99999999", 0, 0, 8192), ("4096", 8192, 0, 0)],
)
def test_available_memory_is_the_lesser_of_the_hosts_and_the_pods(
    tmp_path: Path, limit: str, used: int, cached: int, free: int
) -> None:
    """The files are as in proc(5) and in the kernel's documentation of cgroup v2."""
    (tmp_path / "meminfo").write_text("MemTotal:       16 kB\nMemAvailable:    8 kB\nHugePages_Total:   0\n")
    (tmp_path / "memory.max").write_text(f"{limit}\n")
    (tmp_path / "memory.current").write_text(f"{used}\n")
    (tmp_path / "memory.stat").write_text(f"anon 1\ninactive_file {cached}\n")
    assert available_bytes(tmp_path / "meminfo", tmp_path) == free


def test_a_process_without_an_agent_keeps_nothing(tmp_path: Path) -> None:
    rank = TrainingRank(tmp_path, NodeMemory.of(environment={}))
    rank.save(1)
    assert rank.load()[1] > 8000
