"""Loading a sharded checkpoint: ranks read what they need, share what several need, and detect damage."""

import itertools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import pytest
import torch
import torch.distributed as dist

from tests.training.checkpointing.test_state import ThreadMesh
from trainyard_train.checkpointing import loading
from trainyard_train.checkpointing.checkpoint import Checkpoint, DamagedError, Held, Manifest
from trainyard_train.checkpointing.digests import digests_of
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.loading import Load, boxes
from trainyard_train.checkpointing.state import Buffer
from trainyard_train.checkpointing.tensor_files import file_name

WHOLE = {
    "a": torch.arange(600.0).view(20, 30),
    "b": torch.arange(70, dtype=torch.int16),
    "c": torch.tensor(3.0),
}
Cut = Callable[[torch.Tensor, int, int], tuple[tuple[int, ...], torch.Tensor]]
"""Tensor, rank, number of ranks → the offset and the content of the rank's part."""


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("digests", "checkpoint"):
        monkeypatch.setattr(f"trainyard_train.checkpointing.{module}.BLOCK", 128)


def all_of_it(tensor: torch.Tensor, rank: int, ranks: int) -> tuple[tuple[int, ...], torch.Tensor]:
    return (0,) * tensor.dim(), tensor


def along(dimension: int) -> Cut:
    def cut(tensor: torch.Tensor, rank: int, ranks: int) -> tuple[tuple[int, ...], torch.Tensor]:
        if not tensor.dim():
            return (), tensor
        axis = min(dimension, tensor.dim() - 1)
        each = -(-tensor.shape[axis] // ranks)
        first = min(rank * each, tensor.shape[axis])
        offset = tuple(first if number == axis else 0 for number in range(tensor.dim()))
        return offset, tensor.narrow(axis, first, min(each, tensor.shape[axis] - first))

    return cut


@dataclass(frozen=True)
class RangeRecordingStore(FolderStore):
    ranges: list[tuple[str, int, int]] = field(default_factory=list, compare=False)

    def read_into(self, name: str, start: int, parts: Sequence[memoryview]) -> int:
        self.ranges.append((name, start, start + sum(map(len, parts))))
        return super().read_into(name, start, parts)


def save(root: Path, ranks: int, cut: Cut) -> Checkpoint:
    store = RangeRecordingStore(root)
    staged, files = store.begin(1), {}
    for rank in range(ranks):
        parts = {name: cut(tensor, rank, ranks) for name, tensor in WHOLE.items()}
        offsets = {name: (list(WHOLE[name].shape), list(offset)) for name, (offset, _) in parts.items()}
        tensors = {name: part.contiguous() for name, (_, part) in parts.items()}
        data, _ = Buffer(pinned=False).fill(tensors, offsets, {})
        files[file_name(rank)] = store.write(staged, file_name(rank), data)
    store.commit(staged, Manifest(1, 1, ranks, {}, {}, {}, files))
    return store.open(1)


def load(checkpoint: Checkpoint, ranks: int, cut: Cut) -> tuple[list[ThreadMesh], list[str]]:
    """Load on all ranks and compare with what was saved; return the ranks, and the damage that they found."""
    store = dist.HashStore()
    meshes = [ThreadMesh(rank, ranks, torch.device("cpu"), "node", store) for rank in range(ranks)]
    damages: list[str] = []
    wrong: list[str] = []

    def one(mesh: ThreadMesh) -> None:
        parts = {name: cut(tensor, mesh.rank, ranks) for name, tensor in WHOLE.items()}
        targets = {name: (offset, torch.full_like(part, -1)) for name, (offset, part) in parts.items()}
        try:
            load = Load(checkpoint, mesh, "one")
            load.locate(lambda: targets)
            load.fill(targets)
        except DamagedError as error:
            damages.append(str(error))
            return
        wrong.extend(name for name, (_, part) in parts.items() if not part.equal(targets[name][1]))

    threads = [threading.Thread(target=one, args=[mesh]) for mesh in meshes]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
    assert len(damages) in {0, ranks}
    return meshes, damages


LAYOUTS = {"ddp": along(0), "columns": along(1), "replicas": all_of_it}


@pytest.mark.parametrize("saved", LAYOUTS)
@pytest.mark.parametrize("loaded", LAYOUTS)
@pytest.mark.parametrize(("was", "now"), [(1, 3), (3, 1), (2, 3), (4, 2)])
def test_any_layout_loads_any_other_and_reads_no_byte_twice(
    tmp_path: Path, saved: str, loaded: str, was: int, now: int
) -> None:
    checkpoint = save(tmp_path, was, LAYOUTS[saved])
    store = checkpoint.store
    assert isinstance(store, RangeRecordingStore)
    _, damages = load(checkpoint, now, LAYOUTS[loaded])
    assert damages == []
    blocks = [part for part in store.ranges if part[1] >= checkpoint.file(Path(part[0]).name).entry.header]
    assert len(blocks) == len(set(blocks))
    assert all(stop - start <= 128 for _, start, stop in blocks)


def test_ranks_share_the_reading_of_what_all_need(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1, along(0))
    meshes, _ = load(checkpoint, 4, all_of_it)
    file = checkpoint.file(file_name(0))
    received = [sum(mesh.sent.values()) for mesh in meshes]
    received[0] += file.entry.header  # rank 0 has read the header, and sent it to all
    assert len(file.ranges()) == 20
    assert max(received) - min(received) <= 128
    assert sum(received) == 3 * file.entry.size + file.entry.header


def test_a_rank_whose_layout_is_as_it_was_reads_its_own_file_alone(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 3, along(0))
    meshes, _ = load(checkpoint, 3, along(0))
    assert not any(mesh.sent for mesh in meshes)
    assert isinstance(checkpoint.store, RangeRecordingStore)
    assert len(checkpoint.store.ranges) == sum(
        1 + len(checkpoint.file(name).ranges()) for name in checkpoint.manifest.files
    )


def test_what_one_rank_alone_needs_is_read_straight_into_its_tensors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("copied")

    monkeypatch.setattr(loading, "_copy_elements", refuse)
    assert load(save(tmp_path, 3, along(0)), 3, along(0))[1] == []


def test_a_rank_with_a_file_in_memory_reads_it_for_those_without(tmp_path: Path) -> None:
    """Two nodes of one rank each, under DDP: both need all files, and each has its own in memory."""
    saved = save(tmp_path, 2, along(0))
    content = {name: (tmp_path / "step-00000001" / name).read_bytes() for name in saved.manifest.files}
    store = dist.HashStore()
    held = [Held({file_name(rank): memoryview(content[file_name(rank)])}) for rank in range(2)]
    seen = [replace(saved, store=RangeRecordingStore(tmp_path), held=each) for each in held]
    meshes = [ThreadMesh(rank, 2, torch.device("cpu"), f"node-{rank}", store) for rank in range(2)]
    targets = [{name: ((0,) * each.dim(), each * 0) for name, each in WHOLE.items()} for _ in range(2)]

    def one(rank: int) -> None:
        load = Load(seen[rank], meshes[rank], "one")
        load.locate(lambda: targets[rank])
        load.fill(targets[rank])

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(one, range(2)))
    assert all(found.equal(WHOLE[name]) for each in targets for name, (_, found) in each.items())
    assert [each.bytes_from_store for each in held] == [0, 0]
    assert [each.store.ranges for each in seen if isinstance(each.store, RangeRecordingStore)] == [[], []]


@pytest.mark.parametrize("altered", [False, True])
def test_a_file_in_the_memory_of_all_ranks_is_not_sent_and_is_read_again_where_it_was_altered(
    tmp_path: Path, altered: bool
) -> None:
    """Three ranks of a node, under DDP; all of them have the same files in memory."""
    saved = save(tmp_path, 2, along(0))
    content = {name: bytearray((tmp_path / saved.name / name).read_bytes()) for name in saved.manifest.files}
    for each in content.values() if altered else ():
        each[-1] ^= 1
    store = dist.HashStore()
    held = [Held({name: memoryview(each) for name, each in content.items()}) for _ in range(3)]
    meshes = [ThreadMesh(rank, 3, torch.device("cpu"), "node", store) for rank in range(3)]
    targets = [{name: ((0,) * each.dim(), each * 0) for name, each in WHOLE.items()} for _ in range(3)]

    def one(rank: int) -> None:
        load = Load(replace(saved, held=held[rank]), meshes[rank], "one")
        load.locate(lambda: targets[rank])
        load.fill(targets[rank])

    with ThreadPoolExecutor(3) as pool:
        list(pool.map(one, range(3)))
    assert all(found.equal(WHOLE[name]) for each in targets for name, (_, found) in each.items())
    blocks = sum(end - begin for name in content for begin, end in saved.file(name).ranges())
    sent = sum(sum(mesh.sent.values()) for mesh in meshes)
    assert (sent >= 2 * blocks) == altered
    assert [each.bytes_from_store > 0 for each in held] == [altered] * 3


def test_a_rank_reads_only_what_it_needs(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1, along(0))
    assert isinstance(checkpoint.store, RangeRecordingStore)
    first_rows = WHOLE["a"][:2]
    target = torch.zeros_like(first_rows)
    mesh = ThreadMesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    load = Load(checkpoint, mesh, "one")
    load.locate(lambda: {"a": ((0, 0), target)})
    load.fill({"a": ((0, 0), target)})
    assert target.equal(first_rows)
    assert len(checkpoint.store.ranges) == 1 + 2, "the header, and 240 bytes"


@pytest.mark.parametrize("now", [1, 2, 3])
def test_a_bit_that_flipped_anywhere_is_found_by_all_ranks(tmp_path: Path, now: int) -> None:
    checkpoint = save(tmp_path, 2, along(0))
    path = tmp_path / "step-00000001" / file_name(1)
    content = path.read_bytes()
    for at in range(0, len(content), 97):
        path.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        _, damages = load(checkpoint, now, all_of_it)
        assert len(set(damages)) == 1, at
        assert file_name(1) in damages[0]


def test_the_header_of_a_file_has_the_digest_of_each_block(tmp_path: Path) -> None:
    checkpoint = save(tmp_path, 1, along(0))
    file = checkpoint.file(file_name(0))
    assert len(digests_of(file.header())) == len(file.ranges()) == 20
    checkpoint.verify()


def shapes() -> list[Sequence[int]]:
    return [(), (1,), (7,), (3, 4), (1, 5), (2, 3, 4), (3, 1, 2, 2)]


@pytest.mark.parametrize("shape", shapes())
def test_boxes_hold_the_elements_of_any_interval_in_order(shape: Sequence[int]) -> None:
    whole = torch.arange(max(1, torch.Size(shape).numel())).view(shape)
    for first, last in itertools.combinations(range(whole.numel() + 1), 2):
        found = [
            whole[tuple(slice(a, a + n) for a, n in zip(offset, extent, strict=True))].flatten()
            for offset, extent in boxes(shape, first, last)
        ]
        assert torch.cat(found).tolist() == list(range(first, last))
        assert len(found) <= max(1, 2 * len(shape) - 1)
