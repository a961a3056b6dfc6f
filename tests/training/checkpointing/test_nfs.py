"""Checkpoints on NFS, with a real server and a client per node; server or client may end at any time."""

import os
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.processes import TIMEOUT_SECONDS
from tests.training.checkpointing.nfs import NfsServer, kernel_has_fuse, nfs, nfs_server
from tests.training.checkpointing.test_checkpoint import content, flip_a_bit, newest_step, save
from tests.training.checkpointing.test_saver import IDENTITY, finder, on_ranks
from tests.training.checkpointing.test_saver import manifest as manifest_of_ranks
from tests.training.launch import events, reached, run, settings, sha256, start
from trainyard_train.checkpointing.checkpoint import Manifest
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.saver import Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.tensor_files import file_name

__all__ = ["nfs"]
pytestmark = [
    pytest.mark.ranks,
    pytest.mark.skipif(
        not kernel_has_fuse(), reason="NOT TESTED: checkpoints on NFS, since this kernel has no FUSE"
    ),
]


@pytest.fixture
def clients(nfs: NfsServer, tmp_path: Path) -> Iterator[list[Path]]:
    """Mount the export with two clients; yields this test's folder on each."""
    with ExitStack() as stack:
        mounts = [stack.enter_context(nfs.client(tmp_path / name)) for name in ("one", "other")]
        (mounts[0] / tmp_path.name).mkdir()
        yield [mount / tmp_path.name for mount in mounts]


def commit(store: FolderStore, step: int) -> None:
    staged = store.begin(step)
    files = {"model.pt": store.write(staged, "model.pt", content(step))}
    store.commit(staged, Manifest(step, 1, 1, mesh={}, schedule={}, identity={}, files=files))


@pytest.mark.parametrize("version", [3, 4])
def test_a_checkpoint_outlives_client_and_server(nfs: NfsServer, tmp_path: Path, version: int) -> None:
    with nfs.client(tmp_path / "one", version) as one:
        save(FolderStore(one / tmp_path.name), 20)
    nfs.kill()
    nfs.start()
    with nfs.client(tmp_path / "other", version) as other:
        store = FolderStore(other / tmp_path.name)
        found = store.newest(lambda step, reason: pytest.fail(reason))
        assert found is not None
        assert store.read(found.file("rank-00000.safetensors").path) == content(20)
        assert store.read("latest") == b"step-00000020"
        assert store.committed() == [20]


def test_a_file_of_many_requests_is_read_as_it_was_written(clients: list[Path]) -> None:
    one, other = clients
    data = os.urandom(3_000_001)
    entry = FolderStore(one).write(".", "weights", data)
    assert entry.size == len(data)
    assert FolderStore(other).read("weights") == data


def test_a_damaged_checkpoint_is_skipped_and_its_step_saved_again(clients: list[Path]) -> None:
    one, other = map(FolderStore, clients)
    save(one, 10)
    flip_a_bit(save(one, 20) / "model.pt")
    messages: list[str] = []
    found = other.newest(lambda step, reason: messages.append(f"{step}: {reason}"))
    assert found
    assert found.manifest.step == 10
    assert "model.pt was altered" in messages[0]
    other.quarantine(20)
    save(one, 20)
    assert newest_step(other) == 20


def test_a_commit_is_on_the_servers_disk_at_once(nfs: NfsServer, clients: list[Path], tmp_path: Path) -> None:
    """Before `latest` is updated, and without a later write that would have synced it as well."""
    store = FolderStore(clients[0])
    for step in (10, 20):
        commit(store, step)
        with nfs.after_power_failure(tmp_path / f"after-{step}") as disk:
            assert newest_step(FolderStore(disk / tmp_path.name)) == step


def test_a_server_that_syncs_no_folders_loses_a_commit_at_a_power_failure_alone(tmp_path: Path) -> None:
    """The guide requires `dirsync` for this reason; the checkpoint before is complete."""
    with nfs_server(tmp_path, syncs_folders=False) as server, server.client(tmp_path / "one") as client:
        store = FolderStore(client / "run")
        commit(store, 10)
        commit(store, 20)
        with server.after_power_failure(tmp_path / "after") as disk:
            found = FolderStore(disk / "run").newest(lambda step, reason: pytest.fail(reason))
            assert found is not None
            assert found.manifest.step == 10


def test_a_power_failure_loses_what_is_written_and_not_synced(
    nfs: NfsServer, clients: list[Path], tmp_path: Path
) -> None:
    """Shows that the tests above can fail: the server has the data, its disk does not."""
    with (clients[0] / "file").open("wb", buffering=0) as file:
        file.write(content(1))
        assert (nfs.disk / tmp_path.name / "file").read_bytes() == content(1)
        with nfs.after_power_failure(tmp_path / "before") as disk:
            assert (disk / tmp_path.name / "file").read_bytes() != content(1)
        os.fsync(file.fileno())
        with nfs.after_power_failure(tmp_path / "after") as disk:
            assert (disk / tmp_path.name / "file").read_bytes() == content(1)


def test_two_ranks_on_two_clients_make_one_checkpoint(clients: list[Path]) -> None:
    stores = [FolderStore(client) for client in clients]

    def save_all(saver: Saver) -> None:
        for step in (10, 20, 30):
            saver.save(Snapshot(b"x" * step * 1000, manifest_of_ranks(step)))

    on_ranks(clients[0], save_all, stores)
    for checkpoint, damages in on_ranks(clients[0], lambda saver: finder(saver).newest(IDENTITY), stores):
        assert damages == []
        assert checkpoint is not None
        assert checkpoint.manifest.step == 30
        assert set(checkpoint.manifest.files) == {file_name(0), file_name(1)}


def test_two_runs_that_commit_the_same_step_at_once_write_one_whole_checkpoint(clients: list[Path]) -> None:
    together = threading.Barrier(2)

    def save_five(client: Path) -> None:
        store = FolderStore(client)
        for step in range(1, 6):
            together.wait(TIMEOUT_SECONDS)
            save(store, step)

    with ThreadPoolExecutor(2) as pool:
        list(pool.map(save_five, clients))
    for client in clients:
        store = FolderStore(client)
        assert newest_step(store) == 5
        assert [path.name for path in client.iterdir() if ".tmp" in path.name] == []


@pytest.mark.soak
def test_a_run_whose_server_is_killed_and_restarted_ends_with_the_same_weights(
    nfs: NfsServer, clients: list[Path], tmp_path: Path
) -> None:
    """Each rank has a separate client, which waits for the server as a mount with `hard` does."""
    undisturbed = run(2, settings(tmp_path / "undisturbed"))
    run_dir = nfs.disk / tmp_path.name / "run"
    own = [["--set", f"run_dir={client / 'run'}"] for client in clients]
    ranks = start(2, settings(tmp_path, pace_seconds=0.2), own=own)
    ranks.until(lambda: reached(run_dir, 4))
    nfs.kill()
    time.sleep(0.5)
    nfs.start()
    assert [code for code, _ in ranks.wait()] == [0, 0]
    assert sha256(run_dir) == undisturbed
    assert [line["attempt"] for line in events(run_dir, "resumed")] == []
    found = FolderStore(clients[1] / "run" / "checkpoints").newest(lambda step, reason: pytest.fail(reason))
    assert found is not None
    assert found.manifest.step == 60
