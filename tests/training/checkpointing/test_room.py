"""Saves under bad storage: a full disk, other runs, what is retained, and when a run gives up."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist

from tests.training.launch import events, sha256
from tests.training.test_trainer import configure, train
from trainyard_train.checkpointing.checkpoint import Checkpoint, InUseError, Manifest, Retention
from trainyard_train.checkpointing.digests import Data
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.checkpointing.folder_store import Files, FolderStore
from trainyard_train.checkpointing.saver import Limits, NotDurableError, SaveError, Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.parallelism.mesh import Mesh

SIZE = 3000


def saver_of(store: FolderStore, **limits: Any) -> Saver:
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    return Saver(store, mesh, limits=Limits(**limits))


def save(saver: Saver, step: int, content: bytes = b"") -> None:
    saver.save(Snapshot(content or bytes([step % 256]) * SIZE, Manifest(step, 0, 1, {}, {}, {})))
    saver.wait_for_clean_up(60)


def latest(root: Path) -> str:
    name = (root / "latest").read_text()
    assert (root / name).is_dir(), "it names what is there"
    return name


@dataclass
class FullDisk(Files):
    """A disk that has room for so many bytes in all, and refuses the rest with this error."""

    root: Path
    room: int
    number: int = errno.ENOSPC

    def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        used = sum(each.stat().st_size for each in self.root.rglob("*") if each.is_file())
        if used + len(data) > self.room:
            path.write_bytes(bytes(data[: max(0, self.room - used)]))
            raise OSError(self.number, os.strerror(self.number), str(path))
        super().write(path, data, finish)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
@pytest.mark.parametrize("keep_last", [3, 5])
def test_a_disk_of_3_checkpoints_and_a_third_saves_every_step(
    tmp_path: Path, number: int, keep_last: int, capfd: pytest.CaptureFixture[str]
) -> None:
    store = FolderStore(tmp_path, Retention(keep_last), FullDisk(tmp_path, int(3.3 * (SIZE + 600)), number))
    saver = saver_of(store)
    saver.loaded()
    for step in range(10, 90, 10):
        save(saver, step)
        assert store.committed()[0] == step
        assert len(store.committed()) >= min(2, step // 10)
    for step in store.committed():
        store.open(step).verify()
    output = capfd.readouterr().err
    assert f"{tmp_path} is full: deleted step-00000010 to save a newer one" in output


def test_a_full_disk_never_costs_one_of_the_last_two_that_are_intact(tmp_path: Path) -> None:
    for step in (10, 20, 30):
        save(saver_of(FolderStore(tmp_path)), step)
    (path,) = (tmp_path / "step-00000020").glob("rank-*")
    path.write_bytes(b"x" * SIZE)  # damaged, which nobody knows yet
    store = FolderStore(tmp_path, Retention(3), FullDisk(tmp_path, 3 * (SIZE + 700)))
    saver = saver_of(store)
    saver.loaded(store.open(30))
    save(saver, 40)
    assert store.committed() == [40, 30, 10], "20 is not one of two that are intact"
    store.remove(10)
    full = FolderStore(tmp_path, Retention(3), FullDisk(tmp_path, 0))
    saver.store = full
    with pytest.raises(
        SaveError, match=r"No space left on device: .*free space, or lower checkpoint\.keep_last"
    ):
        save(saver, 50)
    assert full.committed() == [40, 30]


SAVE_ON = """
import sys
from pathlib import Path
from tests.training.checkpointing.test_room import save, saver_of
from trainyard_train.checkpointing.folder_store import FolderStore
store = FolderStore(Path(sys.argv[1], "checkpoints"))
saver = saver_of(store)
saver.loaded()
for step in range(10, 90, 10):
    save(saver, step, bytes([step]) * (1 << 20))
print(store.committed())
"""


def test_a_run_on_a_filesystem_of_3_checkpoints_and_a_third_saves_its_last_step(tmp_path: Path) -> None:
    mounted = ["sh", "-c", 'mount -t tmpfs -o size=3400k none "$1" && exec "$0" -c "$2" "$1"']
    command = ["unshare", "--mount", *mounted, sys.executable, str(tmp_path), SAVE_ON]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if "unshare failed" in done.stderr:
        pytest.skip("mount namespaces need root")
    assert done.stdout == "[80, 70, 60]\n", done.stderr
    assert "needs 0.00488 GiB (keep_last + 2 checkpoints)" in done.stderr


def test_a_folder_with_higher_steps_of_another_run_loses_neither_them_nor_the_new_ones(
    tmp_path: Path,
) -> None:
    others = saver_of(FolderStore(tmp_path))
    for step in (4800, 4900, 5000):
        save(others, step)
    store = FolderStore(tmp_path, Retention(3))
    saver = saver_of(store)
    saver.loaded()
    for step in (100, 200, 300, 400):
        save(saver, step)
        assert latest(tmp_path) == f"step-{step:08d}"
    assert store.committed() == [5000, 4900, 4800, 400, 300, 200]


def test_a_resumed_run_deletes_what_is_older_than_the_checkpoint_it_has_loaded(tmp_path: Path) -> None:
    for step in (10, 20, 30, 40):
        save(saver_of(FolderStore(tmp_path)), step)
    store = FolderStore(tmp_path, Retention(2))
    saver = saver_of(store)
    saver.loaded(store.open(30))
    save(saver, 35)
    assert store.committed() == [40, 35, 30], "40 is not of its past"


def test_a_step_whose_checkpoint_has_other_content_is_saved_and_the_former_one_is_set_aside(
    tmp_path: Path,
) -> None:
    save(saver_of(FolderStore(tmp_path)), 10, b"one")
    save(saver_of(FolderStore(tmp_path)), 10, b"other")
    store = FolderStore(tmp_path)
    assert store.read(store.open(10).file("rank-00000.safetensors").path) == b"other"
    (former,) = tmp_path.glob("step-00000010.replaced.*")
    assert (former / "rank-00000.safetensors").read_bytes() == b"one"
    assert store.quarantined() == [former.name]


def test_of_two_runs_on_a_folder_without_locks_the_first_commits_nothing_once_the_second_has_loaded(
    tmp_path: Path,
) -> None:
    first, second = saver_of(FolderStore(tmp_path)), saver_of(FolderStore(tmp_path))
    first.loaded()
    save(first, 10)
    second.loaded(FolderStore(tmp_path).open(10))
    with pytest.raises(
        InUseError, match=r"was taken over by another run \(.* on node, since .*give each run"
    ):
        save(first, 20)
    save(second, 30)
    assert FolderStore(tmp_path).committed() == [30, 10]


HOLD = """
import sys
from pathlib import Path
from trainyard_train.checkpointing.folder_store import FolderStore
FolderStore(Path(sys.argv[1])).lock(0)
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def holder(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Hold the folder in another process."""
    command = [sys.executable, "-c", HOLD, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_a_second_process_is_refused_while_the_first_one_lives(
    tmp_path: Path, holder: subprocess.Popen[str]
) -> None:
    def find(seconds: float) -> Checkpoint | None:
        mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
        finder = Finder(FolderStore(tmp_path), mesh, NodeMemory(), lock_seconds=seconds)
        return finder.newest({})[0]

    with pytest.raises(InUseError, match=r"is in use by another run .*choose another run_dir"):
        find(0)
    holder.kill()
    assert find(60) is None


def test_a_run_that_has_ended_admits_another_process(tmp_path: Path) -> None:
    train(configure(tmp_path, steps=5))
    hold = [sys.executable, "-c", HOLD, str(tmp_path / "checkpoints")]
    done = subprocess.run(hold, input="", capture_output=True, text=True, check=True)
    assert done.stdout == "held\n"


class Failing(Files):
    def write(self, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        if path.parent.name != path.parent.name.partition(".tmp")[0]:
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        super().write(path, data, finish)


def test_saves_that_fail_end_a_run_after_as_many_as_it_allows(tmp_path: Path) -> None:
    saver = saver_of(FolderStore(tmp_path, files=Failing()), failures=3)
    saver.loaded()
    for step in (10, 20):
        with pytest.raises(SaveError, match="Input/output error"):
            save(saver, step)
    with pytest.raises(NotDurableError, match=r"3 checkpoints in a row have failed.*last durable one: none"):
        save(saver, 30)


def test_saves_that_fail_end_a_run_after_as_long_as_it_allows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = 1000.0
    monkeypatch.setattr("trainyard_train.checkpointing.saver.time.monotonic", lambda: now)
    store = FolderStore(tmp_path)
    saver = saver_of(store, seconds=600)
    saver.loaded()
    saver.save(Snapshot(b"x", Manifest(10, 0, 1, {}, {}, {})))
    saver.store = FolderStore(tmp_path, files=Failing())
    now += 599
    with pytest.raises(SaveError):
        saver.save(Snapshot(b"x", Manifest(20, 0, 1, {}, {}, {})))
    now += 1
    with pytest.raises(NotDurableError, match=r"600 s.*the last durable one: step 10 in"):
        saver.save(Snapshot(b"x", Manifest(30, 0, 1, {}, {}, {})))


def test_the_metrics_of_a_failed_checkpoint_have_the_age_of_the_last_durable_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    write = Files.write

    def failing(files: Files, path: Path, data: Data, finish: Callable[[], object] = lambda: None) -> None:
        if "step-00000010.tmp" in str(path):
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        write(files, path, data, finish)

    monkeypatch.setattr(Files, "write", failing)
    train(configure(tmp_path))
    [failed] = events(tmp_path, "checkpoint_failed")
    assert failed["durable_step"] == 5
    assert 0 <= failed["durable_seconds_ago"] < 600
    assert "step-00000010.tmp" in failed["error"]
    assert "last durable checkpoint: step 5, 0:0" in capfd.readouterr().err
    assert sha256(tmp_path)
    assert json.loads((tmp_path / "final.json").read_text())["step"] == 24


def test_a_deletion_that_is_denied_costs_no_other_deletion_and_names_the_path(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    class Denying(Files):
        def rename(self, source: Path, target: Path) -> None:
            if ".trash." in target.name and "00000010" in target.name:
                raise OSError(errno.EACCES, os.strerror(errno.EACCES), str(source))
            super().rename(source, target)

    store = FolderStore(tmp_path, Retention(1), Denying())
    saver = saver_of(store)
    saver.loaded()
    for step in (10, 20, 30):
        save(saver, step)
    assert store.committed() == [30, 10]
    assert f"Permission denied: '{tmp_path}/step-00000010'; check the owner" in capfd.readouterr().err
