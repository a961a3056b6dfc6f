"""Checkpoints in an object store: complete or absent, on a real S3 server and through its failures."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import time
from pathlib import Path

import boto3
import pytest
import torch
import torch.distributed as dist

from tests.training.launch import events, sha256
from tests.training.s3 import BUCKET, HANG_SECONDS, Proxy, environment, s3
from tests.training.test_trainer import NoticeAt, configure, train
from trainyard_train.__main__ import main
from trainyard_train.checkpointing.checkpoint import (
    MANIFEST,
    CheckpointStore,
    InUseError,
    Manifest,
    Retention,
)
from trainyard_train.checkpointing.digests import Data, room_for_digests
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.lifecycle import marks_of
from trainyard_train.checkpointing.object_store import ObjectStore, StoreError, part_size
from trainyard_train.checkpointing.saver import Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.parallelism.mesh import Mesh

__all__ = ["s3"]
FILES = ("rank-00000.safetensors", "rank-00001.safetensors")


@pytest.fixture
def url(s3: Proxy, tmp_path: Path) -> str:
    s3.reset()
    return f"s3://{BUCKET}/{tmp_path.name}"


@pytest.fixture
def short_timeouts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the client's timeouts, so that it gives up soon on a request that fails."""
    monkeypatch.setattr("trainyard_train.checkpointing.object_store._RETRIES", 1)


def content(step: int) -> bytes:
    return f"weights of step {step}".encode() * 50


def with_room(content: bytes) -> memoryview:
    """Return a file whose blocks have digests, as those of checkpoints have."""
    header = json.dumps({"__metadata__": room_for_digests(len(content))}).encode()
    return memoryview(bytearray(len(header).to_bytes(8, "little") + header + content))


def save(store: CheckpointStore, step: int, data: Data | None = None) -> None:
    staged = store.begin(step)
    files = {name: store.write(staged, name, data or content(step)) for name in FILES}
    store.commit(staged, manifest(step, files))
    store.clean_up([step, *(each for each in store.committed() if each != step)])


def manifest(step: int, files: object) -> Manifest:
    return Manifest(step=step, samples=1, world_size=2, mesh={}, schedule={}, identity={}, files=files)  # type: ignore[arg-type]


def newest_step(store: ObjectStore) -> int | None:
    found = store.newest(lambda step, reason: None)
    if found is None:
        return None
    assert store.read(found.file(FILES[0]).path) == content(found.manifest.step)
    return found.manifest.step


def test_a_file_of_many_megabytes_is_written_in_parts_and_read_back(url: str) -> None:
    store = ObjectStore(url)
    data = with_room(os.urandom(1 << 20) * 12)
    save(store, 1, data)
    assert store.read(store.open(1).file(FILES[0]).path) == data


def test_the_order_of_requests_is_the_protocol(url: str, s3: Proxy) -> None:
    store = ObjectStore(url, Retention(last=1))
    save(store, 1)
    s3.reset()
    save(store, 2)
    puts = [path.rpartition("/")[2] for verb, path in s3.requests if verb == "PUT"]
    assert puts == [*FILES, MANIFEST, "latest"]
    first_deletion = next(i for i, (verb, _) in enumerate(s3.requests) if verb in {"DELETE", "POST"})
    assert MANIFEST in s3.requests[first_deletion][1] or s3.requests[first_deletion][0] == "POST"
    assert max(i for i, (verb, _) in enumerate(s3.requests) if verb == "PUT") < first_deletion
    assert store.committed() == [2]


def test_a_superseded_checkpoint_can_be_tagged_for_the_bucket_to_delete(url: str) -> None:
    store = ObjectStore(url, Retention(last=1, tag=True))
    for step in (1, 2, 3):
        save(store, step)
    assert store.committed() == [3, 2, 1]
    client = boto3.client("s3")

    def tags(step: int) -> list[object]:
        keys = [store._full(f"step-{step:08d}/{name}") for name in store._list(f"step-{step:08d}")]
        assert len(keys) == 3
        return [client.get_object_tagging(Bucket=BUCKET, Key=key.partition("/")[2])["TagSet"] for key in keys]

    assert tags(1) == tags(2) == [[{"Key": "trainyard.dev/superseded", "Value": "true"}]] * 3
    assert tags(3) == [[]] * 3
    own = Saver(store, Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()))
    own.loaded(store.open(2))
    assert (tags(1) != [[]] * 3, tags(2)) == (True, [[]] * 3)
    save(ObjectStore(url, Retention(last=4)), 4)  # a higher keep_last
    assert tags(1) == tags(4) == [[]] * 3
    assert store.read("superseded") == b""


def test_a_copy_of_a_folder_in_a_bucket_is_a_store_and_no_garbage(url: str, tmp_path: Path) -> None:
    folder, store = FolderStore(tmp_path / "checkpoints"), ObjectStore(url)
    save(folder, 1)
    for file in (path for path in folder.root.rglob("*") if path.is_file()):
        store.put(file.relative_to(folder.root).as_posix(), file.read_bytes())
    store.collect_garbage()
    store.open(1).verify()


def test_a_process_does_not_tag_again_what_another_one_has_tagged(url: str, s3: Proxy) -> None:
    first = ObjectStore(url, Retention(last=1, tag=True))
    for step in (1, 2, 3):
        save(first, step)
    s3.reset()
    save(ObjectStore(url, Retention(last=1, tag=True)), 4)
    tagged = [path for verb, path in s3.requests if verb == "PUT" and "?tagging" in path]
    assert len(tagged) == len(FILES) + 1
    assert all("step-00000003/" in path for path in tagged)


def test_a_store_that_hangs_while_it_tags_times_out_and_the_next_call_continues(url: str, s3: Proxy) -> None:
    store = ObjectStore(url, Retention(last=1, tag=True))
    save(store, 1)
    save(store, 2)
    vars(store)["_marks"] = marks_of("s3", 1.5)  # a short timeout only for the requests that hang
    s3.reset(lambda verb, path, number: "hang" if "?tagging" in path and "step-00000002/" in path else "")
    begin = time.monotonic()
    with pytest.raises(StoreError, match=r"mark .*step-00000002.*raise timeouts\.store"):
        save(store, 3)
    assert time.monotonic() - begin < HANG_SECONDS / 2
    assert store.read("superseded").decode().split() == ["step-00000001"]
    s3.reset()
    del vars(store)["_marks"]
    save(store, 4)
    assert {path.split("/")[3] for _, path in s3.requests if "?tagging" in path} == {
        "step-00000002",
        "step-00000003",
    }


def test_the_files_of_a_checkpoint_are_deleted_by_one_request_after_its_manifest(url: str, s3: Proxy) -> None:
    store = ObjectStore(url, Retention(last=1))
    staged = store.begin(1)
    files = {f"rank-{rank:05d}.safetensors": store.write(staged, "x", b"x") for rank in range(20)}
    for name in files:
        store.put(f"{staged}/{name}", b"x")
    store.commit(staged, manifest(1, files))
    s3.reset()
    save(store, 2)
    assert len([verb for verb, _ in s3.requests if verb in {"DELETE", "POST"}]) == 2
    assert not [name for name in store.listing() if "step-00000001" in name]


def test_however_many_checkpoints_there_are_one_request_lists_them(url: str, s3: Proxy) -> None:
    store = ObjectStore(url)
    for step in range(1, 8):
        store.put(f"step-{step:08d}/{MANIFEST}", b"{}")
        store.put(f"step-{step:08d}/0a1b2c3d/{FILES[0]}", b"x")
    s3.reset()
    assert store.committed() == [7, 6, 5, 4, 3, 2, 1]
    assert len(s3.requests) == 1


@pytest.mark.parametrize("harm", ["alter", "delete", "manifest"])
def test_a_damaged_checkpoint_is_skipped_quarantined_and_its_step_saved_again(url: str, harm: str) -> None:
    store = ObjectStore(url)
    save(store, 10)
    save(store, 20)
    staged = store.open(20).manifest.draft
    path = f"step-00000020/{MANIFEST if harm == 'manifest' else f'{staged}/{FILES[1]}'}"
    if harm == "delete":
        store.delete(path)
    else:
        store.put(path, b"{")
    messages: list[str] = []
    found = store.newest(lambda step, reason: messages.append(f"{step}: {reason}"))
    assert found
    assert found.manifest.step == 10
    assert (MANIFEST if harm == "manifest" else FILES[1]) in messages[0]
    store.quarantine(20)
    store.collect_garbage()
    assert store.size(f"step-00000020/{staged}/{FILES[0]}"), "retained for inspection"
    save(store, 20)
    assert newest_step(store) == 20


def test_garbage_collection_deletes_only_what_dead_runs_have_left(url: str) -> None:
    store = ObjectStore(url)
    save(store, 10)
    late = store.begin(10)
    store.write(late, FILES[0], b"of a run that died")
    staged = store.begin(20)
    entry = store.write(staged, FILES[0], b"of a run that is slow")
    store.collect_garbage()
    assert sorted(store._list()) == sorted(
        ["latest", f"step-00000010/{MANIFEST}"]
        + [f"step-00000010/{store.open(10).manifest.draft}/{name}" for name in FILES]
    )
    with pytest.raises(StoreError, match="another run has deleted this staging folder"):
        store.commit(staged, manifest(20, {FILES[0]: entry}))
    assert store.committed() == [10]


def test_two_runs_that_save_the_same_step_write_one_whole_checkpoint(url: str) -> None:
    one, other = ObjectStore(url), ObjectStore(url)
    uncommitted = [store.begin(5) for store in (one, other)]
    for store, staged in zip((one, other), uncommitted, strict=True):
        entries = {name: store.write(staged, name, content(5)) for name in FILES}
        store.commit(staged, manifest(5, entries))
    assert newest_step(one) == 5
    assert one.open(5).manifest.draft == uncommitted[0].rpartition("/")[2]


def written(store: ObjectStore, step: int) -> tuple[str, Manifest]:
    """Write the files of a checkpoint; return its staging directory and its manifest, uncommitted."""
    staged = store.begin(step)
    return staged, manifest(step, {name: store.write(staged, name, content(step)) for name in FILES})


def test_of_two_runs_that_commit_a_step_at_once_one_succeeds_and_the_other_is_cleaned_up(url: str) -> None:
    """S3 responds with 412 if the object exists (docs.aws.amazon.com, API_PutObject, If-None-Match)."""

    class LateStore(ObjectStore):
        def _list(self, below: str = "") -> dict[str, int]:
            found = super()._list(below)
            if not one.committed():  # the other store has listed, and found no manifest
                one.commit(*first)
            return found

    one, other = ObjectStore(url), LateStore(url)
    first, second = written(one, 5), written(other, 5)
    other.commit(*second)
    assert newest_step(one) == 5
    assert one.open(5).manifest.draft == first[0].rpartition("/")[2]
    assert not one._list(second[0])


@pytest.mark.parametrize("fault", ["409 ConditionalRequestConflict", "501 NotImplemented", "mute"])
def test_a_commit_succeeds_after_a_conflict_without_conditional_writes_or_after_a_lost_response(
    url: str, s3: Proxy, short_timeouts: None, fault: str
) -> None:
    """S3 responds with 409 to concurrent requests for one key: "retry the upload" (API_PutObject).

    Stores without conditional writes respond with 501, as S3 did before August 2024 (ceph/s3-tests#218).
    """
    store = ObjectStore(url)
    staged, its = written(store, 5)

    def rule(verb: str, path: str, number: int) -> str:
        again = fault.startswith("501") or s3.conditional.count(True) == 1
        return fault if s3.conditional[number] and again else ""

    s3.reset(rule)
    begin = time.monotonic()
    store.commit(staged, its)
    assert time.monotonic() - begin < store.timeout_seconds
    assert any(s3.conditional)
    s3.reset()
    assert newest_step(store) == 5
    assert store.open(5).manifest.draft == staged.rpartition("/")[2]


def test_an_object_that_was_cut_short_is_found_at_the_commit(url: str) -> None:
    store = ObjectStore(url)
    save(store, 1)
    staged, its = written(store, 2)
    store.put(f"{staged}/{FILES[1]}", content(2)[:-1])
    size = len(content(2))
    with pytest.raises(StoreError, match=rf"{FILES[1]}: got {size - 1} bytes, {size} were sent.*cut"):
        store.commit(staged, its)
    assert newest_step(store) == 1


def test_a_step_with_other_content_is_committed_and_the_former_one_is_set_aside(url: str) -> None:
    store = ObjectStore(url)
    save(store, 5, b"of another run")
    save(store, 5)
    store.collect_garbage()
    assert newest_step(store) == 5
    [former] = store.quarantined()
    files = Manifest.decode(store.read(former)).files
    assert {entry.size for entry in files.values()} == {len(b"of another run")}


def test_a_run_commits_nothing_once_another_one_has_loaded_from_its_store(url: str) -> None:
    def saver() -> Saver:
        return Saver(ObjectStore(url), Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()))

    first, second = saver(), saver()
    first.loaded()
    second.loaded()
    with pytest.raises(InUseError, match="was taken over by another run"):
        first.save(Snapshot(b"x", manifest(1, {})))
    second.save(Snapshot(b"x", manifest(2, {})))
    assert ObjectStore(url).committed() == [2]


@pytest.mark.parametrize("size", [1, 5 << 30, (10_000 * (8 << 20)) + 1, 1 << 40, 48 << 40])
def test_a_file_of_any_size_has_parts_that_s3_takes(size: int) -> None:
    """S3 takes 10,000 parts of 5 MiB to 5 GiB (docs.aws.amazon.com, Amazon S3 multipart upload limits)."""
    part = part_size(size)
    assert -(-size // part) <= 10_000
    assert 5 << 20 <= part <= 5 << 30


def test_a_commit_whose_response_is_lost_retains_all_its_files(
    url: str, s3: Proxy, short_timeouts: None
) -> None:
    store = ObjectStore(url)
    save(store, 1)
    staged = store.begin(2)
    files = {name: store.write(staged, name, content(2)) for name in FILES}
    s3.reset(lambda verb, path, number: "mute" if verb == "PUT" or MANIFEST in path else "")
    with pytest.raises(StoreError, match=MANIFEST):
        store.commit(staged, manifest(2, files))
    s3.reset()
    store.discard(staged)  # as the saver does after a failed commit
    assert newest_step(ObjectStore(url)) == 2
    store.discard(store.begin(1))
    assert sorted(store.committed()) == [1, 2]


def test_requests_are_retried_after_temporary_failures(url: str, s3: Proxy) -> None:
    s3.reset(lambda verb, path, number: ("503", "drop", "500", "")[number % 4])
    save(ObjectStore(url), 1)
    s3.reset()
    assert newest_step(ObjectStore(url)) == 1


def test_a_missing_bucket_a_missing_server_and_an_unknown_scheme_are_reported(
    s3: Proxy, short_timeouts: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(StoreError, match=r"create the bucket, or correct checkpoint\.store"):
        save(ObjectStore("s3://none/run"), 1)
    with pytest.raises(StoreError, match="allowed: s3://…, gs://…, az://…"):
        ObjectStore("carrier-pigeon://loft/run")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    with pytest.raises(StoreError, match="check its endpoint"):
        save(ObjectStore(f"s3://{BUCKET}/run"), 1)


def test_a_preempted_run_resumes_from_the_store_to_the_bit(url: str, tmp_path: Path) -> None:
    train(configure(tmp_path / "whole"))
    parted = configure(tmp_path / "parted", checkpoint={"every_steps": 5, "store": url})
    assert not train(parted, NoticeAt(7))
    assert train(parted)
    assert events(tmp_path / "parted", "resumed")[0]["step"] == 8
    assert sha256(tmp_path / "parted") == sha256(tmp_path / "whole")
    assert ObjectStore(url).committed() == [24, 20, 15]
    assert not (tmp_path / "parted" / "checkpoints").exists()


def test_the_command_line_lists_and_verifies_a_store(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    save(ObjectStore(url), 20)
    assert main(["checkpoint", "ls", url]) == 0
    assert capsys.readouterr().out.splitlines()[1].split()[0] == "20"
    assert main(["checkpoint", "verify", url]) == 0
    assert "step-00000020: intact" in capsys.readouterr().out
    assert main(["checkpoint", "verify", "s3://none/run"]) == 1
    assert "create the bucket" in capsys.readouterr().err


REQUESTS = 24
"""Requests of three saves that retain one checkpoint."""
COMMIT, DELETION = 9, 12
"""Requests that commit the second checkpoint, and delete the first one."""


def save_three(url: str, variables: dict[str, str]) -> None:
    """Save three checkpoints in a child of the fork server, whose environment is the first test's."""
    os.environ.update(variables)
    for step in (1, 2, 3):
        save(ObjectStore(url, Retention(last=1)), step)


@pytest.mark.parametrize(
    "at",
    [
        pytest.param(at, marks=pytest.mark.ranks if at in {COMMIT, DELETION} else pytest.mark.soak)
        for at in range(REQUESTS)
    ],
)
def test_a_kill_at_any_request_loses_no_committed_checkpoint(url: str, s3: Proxy, at: int) -> None:
    """Kill the client when the proxy gets its n-th request: only the requests before it were executed."""
    child = multiprocessing.get_context("forkserver").Process(target=save_three, args=(url, environment(s3)))

    def rule(verb: str, path: str, number: int) -> str:
        if number < at:
            return ""
        child.kill()
        return "drop"

    s3.reset(rule)
    child.start()
    child.join()
    assert child.exitcode == -signal.SIGKILL
    manifests = {path.split("?")[0] for verb, path in s3.requests[:at] if verb == "PUT" and MANIFEST in path}
    s3.reset()
    store = ObjectStore(url, Retention(last=1))
    found = store.newest(lambda step, reason: pytest.fail(reason))
    assert (found.manifest.step if found else 0) == len(manifests)
    store.collect_garbage()
    save(store, 4)
    assert newest_step(store) == 4
