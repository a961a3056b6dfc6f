"""Several ranks save one checkpoint together, or none."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event
from typing import TypeVar

import pytest
import torch
import torch.distributed as dist

from trainyard_train.checkpointing.checkpoint import Manifest, Retention
from trainyard_train.checkpointing.digests import Data, FileEntry
from trainyard_train.checkpointing.finding import Finder, MismatchError, UnsharedError
from trainyard_train.checkpointing.folder_store import Files, FolderStore
from trainyard_train.checkpointing.saver import SaveError, Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.parallelism.mesh import Mesh

IDENTITY = {"seed": 7, "model": {"name": "mlp"}}


def manifest(step: int) -> Manifest:
    return Manifest(step=step, samples=step, world_size=2, mesh={"data": 2}, schedule={}, identity=IDENTITY)


T = TypeVar("T")


def on_ranks(root: Path, work: Callable[[Saver], T], stores: list[FolderStore] | None = None) -> list[T]:
    """Do the same work on two ranks, which are threads; return the result of each."""
    shared = dist.HashStore()
    savers = [
        Saver(
            stores[rank] if stores else FolderStore(root),
            Mesh(rank, 2, torch.device("cpu"), f"node-{rank}", shared),
        )
        for rank in (0, 1)
    ]
    with ThreadPoolExecutor(2) as pool:
        return [future.result() for future in [pool.submit(work, saver) for saver in savers]]


def save(saver: Saver, step: int) -> int:
    return saver.save(Snapshot(b"x" * (step + saver.mesh.rank), manifest(step))).size


def finder(saver: Saver) -> Finder:
    return Finder(saver.store, saver.mesh, saver.memory)


def save_and_clean_up(saver: Saver) -> int:
    size = save(saver, 10)
    saver.wait_for_clean_up(60)
    return size


def test_the_files_of_all_ranks_are_in_one_checkpoint(tmp_path: Path) -> None:
    assert on_ranks(tmp_path, lambda saver: save(saver, 10)) == [21, 21]
    found = on_ranks(tmp_path, lambda saver: finder(saver).newest(IDENTITY)[0])
    assert found[0] == found[1]
    assert found[0] is not None
    assert set(found[0].manifest.files) == {file_name(0), file_name(1)}


@pytest.mark.parametrize("failing", [0, 1])
def test_one_rank_whose_disk_is_full_fails_the_checkpoint_on_all_and_names_itself(
    tmp_path: Path, failing: int
) -> None:
    class Full(FolderStore):
        def write(self, staged: str, name: str, data: Data) -> FileEntry:
            raise OSError(errno.ENOSPC, "No space left on device", name)

    stores = [Full(tmp_path) if rank == failing else FolderStore(tmp_path) for rank in (0, 1)]

    def attempt(saver: Saver) -> str:
        with pytest.raises(SaveError) as caught:
            save(saver, 10)
        return str(caught.value)

    texts = on_ranks(tmp_path, attempt, stores)
    assert texts[0] == texts[1]
    assert f"rank {failing} on node-{failing}" in texts[0]
    assert "No space left" in texts[0]
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_made_fails_the_checkpoint_on_all(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")

    def attempt(saver: Saver) -> None:
        with pytest.raises(SaveError):
            save(saver, 10)

    on_ranks(tmp_path / "file" / "checkpoints", attempt)


def test_a_commit_that_fails_fails_on_all_ranks_and_the_next_one_succeeds(tmp_path: Path) -> None:
    class Once(Files):
        failed = False

        def rename(self, source: Path, target: Path) -> None:
            if not self.failed:
                self.failed = True
                raise OSError(errno.EIO, "Input/output error")
            super().rename(source, target)

    store = FolderStore(tmp_path, files=Once())

    def attempt(saver: Saver) -> int:
        with pytest.raises(SaveError, match="Input/output error"):
            save(saver, 10)
        return save(saver, 20)

    assert on_ranks(tmp_path, attempt, [store, FolderStore(tmp_path)]) == [41, 41]
    assert store.committed() == [20]


def test_a_failure_after_the_commit_costs_no_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class NoRoom(Files):
        def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
            if path.name.startswith("latest"):
                raise OSError(errno.ENOSPC, "No space left on device")
            super().write(path, data, finish)

    store = FolderStore(tmp_path, files=NoRoom())
    assert on_ranks(tmp_path, save_and_clean_up, [store, FolderStore(tmp_path)]) == [21, 21]
    assert store.committed() == [10]
    assert (
        "the checkpoint of step 10 is committed, but the clean-up after it failed" in capfd.readouterr().err
    )


def test_a_save_returns_before_its_clean_up_and_late_clean_ups_are_merged(tmp_path: Path) -> None:
    class SlowStore(FolderStore):
        def clean_up(self, order: Sequence[int]) -> None:
            begun.set()
            assert free.wait(60)
            finished.append(order[0])
            super().clean_up(order)

    begun, free = Event(), Event()
    finished: list[int] = []

    def work(saver: Saver) -> None:
        save(saver, 10)
        if saver.mesh.is_rank0:
            assert begun.wait(60)
        save(saver, 20)
        save(saver, 30)
        free.set()
        saver.wait_for_clean_up(60)

    on_ranks(tmp_path, work, [SlowStore(tmp_path, Retention(1)), FolderStore(tmp_path)])
    assert finished == [10, 30]
    assert {path.name for path in tmp_path.iterdir()} == {"latest", "step-00000030"}


def test_the_wait_for_a_clean_up_that_hangs_times_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Hanging(FolderStore):
        def clean_up(self, order: Sequence[int]) -> None:
            free.wait(60)

    free = Event()

    def work(saver: Saver) -> None:
        save(saver, 10)
        saver.close()
        saver.wait_for_clean_up(0.2)

    on_ranks(tmp_path, work, [Hanging(tmp_path), FolderStore(tmp_path)])
    free.set()
    assert "exiting before all superseded checkpoints are deleted" in capfd.readouterr().err


def test_all_ranks_fall_back_together_past_a_damaged_checkpoint(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    def two(saver: Saver) -> None:
        save(saver, 10)
        save(saver, 20)

    on_ranks(tmp_path, two)
    (tmp_path / "step-00000020" / file_name(1)).unlink()
    found = on_ranks(tmp_path, lambda saver: finder(saver).newest(IDENTITY))
    assert [checkpoint.manifest.step for checkpoint, _ in found if checkpoint] == [10, 10]
    assert found[0][1] == found[1][1]
    assert f"{file_name(1)} is missing" in found[1][1][0]
    assert "skipping a damaged checkpoint" in capfd.readouterr().err


def test_a_folder_that_one_rank_does_not_share_costs_no_existing_checkpoint(tmp_path: Path) -> None:
    on_ranks(tmp_path / "shared", lambda saver: save(saver, 10))

    def attempt(saver: Saver) -> str:
        with pytest.raises(UnsharedError) as caught:
            finder(saver).newest(IDENTITY)
        return str(caught.value)

    texts = on_ranks(
        tmp_path, attempt, [FolderStore(tmp_path / "shared"), FolderStore(tmp_path / "of rank 1 alone")]
    )
    assert texts[0] == texts[1]
    assert "step-00000010" in texts[0]
    assert (
        "manifest.json is missing (reported by rank 1 on node-1), but rank 0 on node-0 reads it intact"
        in texts[0]
    )
    assert "check that all ranks share run_dir" in texts[0]
    assert FolderStore(tmp_path / "shared").committed() == [10]


def test_a_node_that_alters_what_it_reads_costs_no_checkpoint(tmp_path: Path) -> None:
    class Altering(FolderStore):
        def read_into(self, name: str, start: int, parts: Sequence[memoryview]) -> int:
            count = super().read_into(name, start, parts)
            for part in parts:
                part[:] = part.tobytes().replace(b"x", b"y")
            return count

    on_ranks(tmp_path, lambda saver: save(saver, 10))

    def attempt(saver: Saver) -> None:
        with pytest.raises(
            UnsharedError,
            match=r"rank-00001.safetensors was altered.*reported by rank 1 on node-1.*check the node",
        ):
            finder(saver).newest(IDENTITY)

    on_ranks(tmp_path, attempt, [FolderStore(tmp_path), Altering(tmp_path)])
    assert FolderStore(tmp_path).committed() == [10]


def test_a_folder_that_one_rank_does_not_share_is_reported_at_the_first_save(tmp_path: Path) -> None:
    def attempt(saver: Saver) -> None:
        with pytest.raises(SaveError, match=r"rank 1 on node-1: .* the ranks do not share run_dir"):
            save(saver, 10)

    on_ranks(tmp_path, attempt, [FolderStore(tmp_path / "0"), FolderStore(tmp_path / "1")])
    assert FolderStore(tmp_path / "0").committed() == []


def test_a_weight_of_one_rank_that_is_not_finite_fails_the_checkpoint_on_all(tmp_path: Path) -> None:
    def attempt(saver: Saver) -> None:
        learned = {"w": torch.tensor([0.0, torch.nan if saver.mesh.rank else 1.0])}
        with pytest.raises(SaveError, match="rank 1 on node-1: w has NaN or infinite values"):
            saver.save(Snapshot(b"x", manifest(10), learned))

    on_ranks(tmp_path, attempt)
    assert list(tmp_path.iterdir()) == []


def test_ranks_verify_each_file_once_among_them_where_there_is_no_older_checkpoint(tmp_path: Path) -> None:
    class ReadRecordingStore(FolderStore):
        def read_into(self, name: str, start: int, parts: Sequence[memoryview]) -> int:
            read.append((name, start, start + sum(map(len, parts))))
            return super().read_into(name, start, parts)

    read: list[tuple[str, int, int]] = []
    on_ranks(tmp_path, lambda saver: save(saver, 10))
    stores: list[FolderStore] = [ReadRecordingStore(tmp_path), ReadRecordingStore(tmp_path)]
    on_ranks(tmp_path, lambda saver: finder(saver).newest(IDENTITY), stores)
    assert sorted(read) == [(f"step-00000010/{file_name(rank)}", 0, 10 + rank) for rank in (0, 1)]
    on_ranks(tmp_path, lambda saver: save(saver, 20))
    read.clear()
    on_ranks(tmp_path, lambda saver: finder(saver).newest(IDENTITY), stores)
    assert read == []


def test_a_checkpoint_of_another_run_is_refused_with_every_difference(tmp_path: Path) -> None:
    on_ranks(tmp_path, lambda saver: save(saver, 10))

    def attempt(saver: Saver) -> str:
        with pytest.raises(MismatchError) as caught:
            finder(saver).newest({"seed": 8, "model": {"name": "convnet"}})
        return str(caught.value)

    text = on_ranks(tmp_path, attempt)[1]
    assert "seed: the checkpoint has 7, the configuration 8" in text
    assert "model: the checkpoint has {'name': 'mlp'}" in text
