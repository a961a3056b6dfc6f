"""Checkpoints in a folder: no kill, full disk or power failure loses a committed one; damaged ones fail."""

from __future__ import annotations

import errno
import fcntl
import json
import mmap
import os
import random
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.processes import wait_for
from tests.training.checkpointing.disk import Forgetful, Killing, Recording
from trainyard_train.checkpointing.checkpoint import MANIFEST, DamagedError, FormatError, Manifest, Retention
from trainyard_train.checkpointing.folder_store import Files, FolderStore


def content(step: int) -> bytes:
    return f"weights of step {step}".encode() * 50


def save(store: FolderStore, step: int) -> Path:
    staged = store.begin(step)
    entries = {
        name: store.write(staged, name, content(step)) for name in ("model.pt", "rank-00000.safetensors")
    }
    store.commit(
        staged,
        Manifest(
            step=step,
            samples=step * 64,
            world_size=2,
            mesh={"data": 2},
            schedule={},
            identity={},
            files=entries,
        ),
    )
    store.clean_up([step, *(each for each in store.committed() if each != step)])
    return store.root / f"step-{step:08d}"


def newest_step(store: FolderStore) -> int | None:
    found = store.newest(lambda step, reason: None)
    if found is None:
        return None
    assert store.read(found.file("model.pt").path) == content(found.manifest.step)
    return found.manifest.step


def test_a_checkpoint_is_read_as_it_was_saved(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    save(store, 20)
    found = store.newest(lambda step, reason: pytest.fail(reason))
    assert found is not None
    assert found.manifest.samples == 20 * 64
    assert store.read(found.file("rank-00000.safetensors").path) == content(20)
    assert (tmp_path / "latest").read_text() == "step-00000020"


def test_a_checkpoint_records_what_its_run_was_started_from(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the variable, or with one that is not JSON, the checkpoint is as of an earlier version."""
    known = {"code": "sha256:0", "commit": "c0ffee"}
    for step, text, origin in ((1, json.dumps(known), known), (2, "no JSON", {})):
        monkeypatch.setenv("TRAINYARD_ORIGIN", text)
        written = (save(FolderStore(tmp_path), step) / MANIFEST).read_bytes()
        monkeypatch.setenv("TRAINYARD_ORIGIN", '{"code": "sha256:1"}')
        assert Manifest.decode(written).origin == origin, "not that of the run that reads it"
        assert (b"origin" in written) == bool(origin)


def test_the_order_of_calls_is_the_protocol(tmp_path: Path) -> None:
    files = Recording()
    store = FolderStore(tmp_path, retention=Retention(1), files=files)
    save(store, 1)
    files.calls.clear()
    save(store, 2)
    assert files.calls == [
        ("write", "model.pt"),
        ("write", "rank-00000.safetensors"),
        ("write", MANIFEST),
        ("sync", "step-00000002.tmp"),
        ("rename", "step-00000002.tmp → step-00000002"),
        ("sync", tmp_path.name),
        ("write", "latest.tmp"),
        ("rename", "latest.tmp → latest"),
        ("sync", tmp_path.name),
        ("rename", "step-00000001 → step-00000001.trash"),
        ("remove", "step-00000001.trash"),
    ]


def test_what_is_synced_was_flushed_before(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    synced: list[int] = []
    monkeypatch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
    Files().write(tmp_path / "file", b"x" * 5000)
    assert synced == [5000]


@pytest.mark.parametrize("size", [0, 1, (1 << 20) - 1, 1 << 20, (1 << 20) + 1, (3 << 20) + 4095])
@pytest.mark.parametrize("offset", [0, 1, 512])
def test_a_file_is_complete_whatever_its_alignment_in_memory(tmp_path: Path, size: int, offset: int) -> None:
    with mmap.mmap(-1, offset + size + 1) as room:
        content = random.Random(size).randbytes(size)
        room[offset : offset + size] = content
        with memoryview(room)[offset : offset + size] as data:
            Files().write(tmp_path / "file", data)
    assert (tmp_path / "file").read_bytes() == content


@pytest.mark.parametrize("refused", ["flag", "write"])
def test_a_filesystem_without_direct_writes_gets_the_complete_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refused: str
) -> None:
    write, direct = os.write, False
    asked: list[str] = []

    def control(_descriptor: int, _command: int, flags: int = 0) -> int:
        nonlocal direct
        direct = bool(flags & os.O_DIRECT)
        if direct and refused == "flag":
            refuse()
        return 0

    def writing(descriptor: int, data: memoryview) -> int:
        if direct and refused == "write":
            refuse()
        return write(descriptor, data)

    def refuse() -> None:
        asked.append(refused)
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(fcntl, "fcntl", control)
    monkeypatch.setattr(os, "write", writing)
    content = random.Random(0).randbytes((1 << 20) + 5)
    Files().write(tmp_path / "file", content)
    assert (tmp_path / "file").read_bytes() == content
    assert asked == [refused]


def test_a_full_disk_is_reported_when_the_page_cache_is_bypassed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(descriptor: int, data: memoryview) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(OSError, match="No space left"):
        Files().write(tmp_path / "file", bytes(1 << 20))


def test_only_the_last_k_are_retained(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, retention=Retention(2))
    for step in (9, 10, 100_000_000, 11):
        save(store, step)
    assert store.committed() == [100_000_000, 11]
    assert (tmp_path / "latest").read_text() == "step-00000011"


def test_every_nth_is_never_deleted(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, retention=Retention(last=2, every_steps=20))
    for step in range(10, 80, 10):
        save(store, step)
    assert store.committed() == [70, 60, 40, 20]


def test_a_step_that_is_already_committed_is_not_overwritten(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    first = save(store, 5)
    inode = first.stat().st_ino
    save(store, 5)
    assert first.stat().st_ino == inode
    assert [path.name for path in tmp_path.iterdir() if ".tmp" in path.name] == []


def truncate(path: Path) -> None:
    os.truncate(path, path.stat().st_size // 2)


def flip_a_bit(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def empty(path: Path) -> None:
    path.write_bytes(b"")


@pytest.mark.parametrize("name", ["model.pt", "rank-00000.safetensors", MANIFEST])
@pytest.mark.parametrize("harm", [truncate, flip_a_bit, empty, Path.unlink])
def test_a_damaged_checkpoint_is_skipped_with_a_message(
    tmp_path: Path, name: str, harm: Callable[[Path], None]
) -> None:
    store = FolderStore(tmp_path)
    save(store, 10)
    harm(save(store, 20) / name)
    messages: list[str] = []
    found = store.newest(lambda step, reason: messages.append(f"{step}: {reason}"))
    assert found is not None
    assert found.manifest.step == 10
    assert len(messages) == 1
    assert messages[0].startswith("20: ")
    assert name in messages[0]


def test_a_manifest_of_another_step_is_not_trusted(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    save(store, 10).rename(tmp_path / "step-00000030")
    with pytest.raises(DamagedError, match="is of step 10"):
        store.open(30)


@pytest.mark.parametrize(
    ("format", "advice"),
    [
        (2, "allowed: 5, .*; resume with the older package that wrote it"),
        (6, "allowed: 5, .*; update this package"),
    ],
)
def test_a_manifest_of_another_version_is_refused_with_the_next_step(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, format: int, advice: str
) -> None:
    store = FolderStore(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("trainyard_train.checkpointing.checkpoint.FORMAT", format)
        save(store, 20)
    with pytest.raises(FormatError, match=f"got format {format}; {advice}"):
        newest_step(store)
    assert store.committed() == [20]


def test_an_altered_format_number_counts_as_damage_not_as_another_version(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    save(store, 10)
    path = save(store, 20) / MANIFEST
    path.write_text(path.read_text().replace('"format": 5', '"format": 7'))
    with pytest.raises(DamagedError, match="its own checksum does not match"):
        store.open(20)
    assert newest_step(store) == 10


def test_a_damaged_step_can_be_saved_again_after_it_is_quarantined(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    empty(save(store, 10) / "model.pt")
    store.quarantine(10)
    save(store, 10)
    assert newest_step(store) == 10
    assert len(list(tmp_path.glob("step-00000010.damaged.*"))) == 1


def test_garbage_collection_deletes_only_what_dead_runs_have_left(tmp_path: Path) -> None:
    store = FolderStore(tmp_path)
    save(store, 10)
    store.begin(20)
    (tmp_path / "step-00000005.trash.0a1b2c3d").mkdir()
    (tmp_path / "latest.tmp.0a1b2c3d").write_text("step-0000")
    (tmp_path / "notes").mkdir()
    store.collect_garbage()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "notes", "step-00000010"]


def test_a_run_whose_staging_directory_a_newer_run_deleted_commits_nothing(tmp_path: Path) -> None:
    old, new = FolderStore(tmp_path), FolderStore(tmp_path)
    staged = old.begin(10)
    new.collect_garbage()
    with pytest.raises(FileNotFoundError):
        old.write(staged, "model.pt", b"late")
    assert newest_step(new) is None


class InterruptedRenames(Files):
    """Calls `other`, which acts as another run, before each rename."""

    def __init__(self, other: Callable[[], object]) -> None:
        self.other = other

    def rename(self, source: Path, target: Path) -> None:
        self.other()
        super().rename(source, target)


@pytest.mark.parametrize("other", ["cleans up", "collects garbage"])
def test_a_clean_up_succeeds_while_another_run_deletes_the_same(tmp_path: Path, other: str) -> None:
    rival = FolderStore(tmp_path, retention=Retention(1))
    for step in (1, 2):
        save(FolderStore(tmp_path), step)
    act = {"cleans up": lambda: rival.clean_up([2, 1]), "collects garbage": rival.collect_garbage}[other]
    FolderStore(tmp_path, retention=Retention(1), files=InterruptedRenames(act)).clean_up([2, 1])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["latest", "step-00000002"]
    assert (tmp_path / "latest").read_text() == "step-00000002"


def save_in_child(store: FolderStore, steps: list[int], committed: Path) -> int:
    """Save in a child process, which writes each committed step to a file; return the child's exit code."""
    child = os.fork()
    if child == 0:
        try:
            for step in steps:
                save(store, step)
                committed.write_text(str(step))
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.parametrize("at", range(30))
def test_a_kill_at_any_call_loses_no_committed_checkpoint(tmp_path: Path, at: int) -> None:
    root, file = tmp_path / "checkpoints", tmp_path / "committed"
    file.write_text("0")
    code = save_in_child(FolderStore(root, retention=Retention(1), files=Killing(at=at)), [1, 2, 3], file)
    assert code == -9
    committed = int(file.read_text())
    store = FolderStore(root, retention=Retention(1))
    damages: list[str] = []
    found = store.newest(lambda step, reason: damages.append(reason))
    assert damages == []
    assert (found.manifest.step if found else 0) in {committed, committed + 1}
    store.collect_garbage()
    for step in range(committed + 1, 5):
        save(store, step)
    assert newest_step(store) == 4
    assert {path.name for path in root.iterdir()} == {"latest", "step-00000004"}


def violations(tmp_path: Path, **bugs: bool) -> list[str]:
    """Save five steps, load after a power failure at every call, and report the lost committed steps."""
    found: list[str] = []
    live, durable = tmp_path / "live", tmp_path / "durable"
    durable.mkdir()

    class Checked(Forgetful):
        def rename(self, source: Path, target: Path) -> None:
            super().rename(source, target)
            check()

        def sync_directory(self, path: Path) -> None:
            super().sync_directory(path)
            check()

        def remove_tree(self, path: Path) -> None:
            super().remove_tree(path)
            check()

    promised = 0

    def check() -> None:
        copy = tmp_path / "after"
        shutil.copytree(durable, copy)
        step = newest_step(FolderStore(copy)) or 0
        shutil.rmtree(copy)
        if step < promised:
            found.append(f"step {promised} was committed, {step} was loaded")

    live.mkdir()
    store = FolderStore(live, retention=Retention(1), files=Checked(live, durable, **bugs))
    for step in range(1, 6):
        save(store, step)
        promised = step
        check()
    return found


def test_a_power_failure_at_any_call_loses_no_committed_checkpoint(tmp_path: Path) -> None:
    assert violations(tmp_path) == []


@pytest.mark.parametrize("part", ["fsync", "sync_names"])
def test_a_missing_sync_is_detected(tmp_path: Path, part: str) -> None:
    assert violations(tmp_path, **{part: False}) != []


def test_a_missing_rename_is_detected(tmp_path: Path) -> None:
    """Without the rename, a start finds a checkpoint that a kill cut short; with it, it never does."""

    class InPlace(FolderStore):
        def begin(self, step: int) -> str:
            name = f"step-{step:08d}"
            self.files.make_directory(self.root / name)
            return name

    def damaged_steps(store_type: type[FolderStore]) -> list[int]:
        root = tmp_path / store_type.__name__
        damages: list[int] = []
        save_in_child(store_type(root, files=Killing(at=1)), [1], tmp_path / "committed")
        store_type(root).newest(lambda step, reason: damages.append(step))
        return damages

    assert damaged_steps(FolderStore) == []
    assert damaged_steps(InPlace) == [1]


def test_a_load_during_saves_always_finds_a_complete_checkpoint(tmp_path: Path) -> None:
    enough = tmp_path / "enough"
    store = FolderStore(tmp_path / "checkpoints", retention=Retention(2))
    save(store, 1)
    child = os.fork()
    if child == 0:
        try:
            step = 1
            while not enough.exists():
                save(store, step := step + 1)
        finally:
            os._exit(0)
    seen: list[int] = []

    def load_some() -> bool:
        for _ in range(20):
            found = store.newest(lambda step, reason: pytest.fail(reason))
            assert found is not None
            seen.append(found.manifest.step)
        return len(set(seen)) > 20

    try:
        wait_for(load_some)
    finally:
        enough.touch()
        os.waitpid(child, 0)
    assert seen == sorted(seen)
