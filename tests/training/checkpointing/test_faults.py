"""Faults of storage × what a run does there: none begins at step 0, loses a verified checkpoint, or advises
what is not true.
"""

from __future__ import annotations

import errno
import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import torch
import torch.distributed as dist

from tests.training.checkpointing.test_object_store import short_timeouts
from tests.training.s3 import BUCKET, Proxy, s3
from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    CheckpointStore,
    DamagedError,
    Manifest,
    Retention,
    UnreadableError,
    step_name,
)
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.checkpointing.folder_store import FolderStore
from trainyard_train.checkpointing.object_store import ObjectStore
from trainyard_train.checkpointing.saver import SaveError, Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.config_base import RefusalError
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.parallelism.mesh import Mesh

__all__ = ["s3", "short_timeouts"]
FALSE: Final = ("short", "altered", "404 NoSuchKey")
"""Faults of which a reader sees only content that is wrong, or missing."""


def restore(checkpoint: Checkpoint, _: str) -> None:
    try:
        checkpoint.verify()
    except OSError as error:
        raise UnreadableError(str(error)) from error


def attempt(store: CheckpointStore, *steps: int) -> int:
    """Load as a start does, and save steps; returns the step that it has resumed from, 0 for none."""
    mesh = Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore())
    saver = Saver(store, mesh)
    try:
        checkpoint, _, _ = Finder(store, mesh, NodeMemory()).load({}, restore)
        saver.loaded(checkpoint)
        for step in steps:
            saver.save(Snapshot(bytes([step]) * 3000, Manifest(step, 0, 1, {}, {}, {})))
            saver.wait_for_clean_up(60)
        return checkpoint.manifest.step if checkpoint else 0
    finally:
        saver.close()


def intact(store: CheckpointStore) -> list[int]:
    found = []
    for step in store.committed():
        with suppress(DamagedError):
            store.open(step).verify()
            found.append(step)
    return found


def check(
    fresh: Callable[[], CheckpointStore], fault: AbstractContextManager[list[str]], phase: str, kind: str
) -> str:
    """Save 10, 20, 30 (two are retained), go on with the fault, then without it; return the errors' text."""
    attempt(fresh(), 10, 20, 30)
    if phase == "quarantine":
        fresh().put(f"{step_name(30)}/{fresh().open(30).manifest.draft or '.'}/rank-00000.safetensors", b"x")
    before, text = intact(fresh()), ""
    with fault as met:
        try:
            assert attempt(fresh(), 40) in before
        except (OSError, RefusalError) as error:
            text = str(error)
    assert met, "the fault did not occur"
    after, set_aside = intact(fresh()), fresh().quarantined()
    if kind in FALSE:  # what twice differs from its digests is set aside, with all its files
        before = before[1:]
    elif phase != "quarantine":
        assert set_aside == [], text
    assert after[:1] >= before[:1], text
    assert len(after) >= len(before), f"{before} → {after}: {text}"
    assert attempt(fresh(), 50, 60) == after[0]
    assert intact(fresh())[:2] == [60, 50]
    return text


CALLS: Final[dict[str, list[tuple[Any, str, str]]]] = {
    "load": [(os, "preadv", "030/"), (Path, "read_bytes", "030/"), (Path, "stat", "030/rank")],
    "list": [(Path, "iterdir", "/folder")],
    "save": [(os, "write", "040.tmp"), (Path, "mkdir", "040.tmp"), (os, "fsync", "040.tmp")],
    "commit": [(Path, "replace", "040.tmp"), (os, "fsync", "/folder")],
    "retention": [(Path, "replace", "step-00000020"), (shutil, "rmtree", ".trash.")],
    "quarantine": [(Path, "replace", "step-00000030")],
}
"""Phase → calls of the system, and a part of the paths for which they fail."""
ERRORS: Final = (
    *("EIO", "ESTALE", "EROFS", "ENOSPC", "EDQUOT", "EACCES", "EPERM", "ETIMEDOUT", "EHOSTUNREACH"),
    *("ENOTCONN", "EREMOTEIO", "ENXIO"),
)


@contextmanager
def failing(owner: Any, name: str, part: str, kind: str) -> Iterator[list[str]]:
    """Let a call fail for some paths; `…, late`: it does its work, and then fails."""
    real = getattr(owner, name)
    number, met = getattr(errno, kind.partition(",")[0], 0), list[str]()

    def call(first: Any, *rest: Any, **more: Any) -> Any:
        path = str(Path(f"/proc/self/fd/{first}").readlink() if isinstance(first, int) else first)
        if part not in path:
            return real(first, *rest, **more)
        met.append(path)
        if kind in FALSE:
            return falsified(real, kind, first, *rest)
        if kind.endswith("late"):
            real(first, *rest, **more)
        raise OSError(number, os.strerror(number), None if isinstance(first, int) else path)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, call)
        yield met


def falsified(real: Callable[..., Any], kind: str, first: Any, *rest: Any) -> Any:
    """What a read returns, cut short or altered."""
    if not rest:
        return real(first)[:-9] + (b"" if kind == "short" else b"?" * 9)
    parts, offset = rest
    if kind == "short":
        return real(first, [parts[0][: len(parts[0]) // 2]], offset) if offset == 0 else 0
    count = real(first, parts, offset)
    parts[0][0] ^= 1
    return count


@pytest.mark.parametrize("kind", [*ERRORS, "EIO, late", "short", "altered"])
@pytest.mark.parametrize("phase", CALLS)
def test_no_fault_of_a_folder_costs_a_verified_checkpoint_or_begins_at_step_0(
    tmp_path: Path, phase: str, kind: str
) -> None:
    calls = [each for each in CALLS[phase] if kind not in FALSE or "read" in each[1]]
    for number, call in enumerate(calls):
        fresh = partial(FolderStore, tmp_path / str(number) / "folder", Retention(2))
        text = check(fresh, failing(*call, kind), phase, kind)
        assert "step 0" not in text
        if phase in {"load", "list"} and kind in ERRORS:
            assert "nothing was changed" in text and os.strerror(getattr(errno, kind)) in text


@contextmanager
def answering(s3: Proxy, fault: str, asked: str) -> Iterator[list[str]]:
    """Let the store answer requests of this kind by the fault."""
    met: list[str] = []
    s3.reset(lambda verb, path, _: met.append(path) or fault if re.search(asked, f"{verb} {path}") else "")  # type: ignore[func-returns-value]
    yield met
    s3.reset()


ASKED: Final = {
    "load": r"GET .*step-00000030",
    "list": r"GET .*list-type",
    "save": r"PUT .*step-00000040.*rank",
    "commit": r"PUT .*step-00000040/manifest|GET .*list-type.*step-00000040",
    "retention": r"(DELETE|POST) ",
    "quarantine": r"(PUT|DELETE) .*step-00000030|POST ",
}
"""Phase → requests that are answered by the fault."""
ADVICE: Final = {
    "500 InternalError": "overloaded or down",
    "503 SlowDown": "overloaded or down",
    "403 AccessDenied": "check the credentials",
    "403 RequestTimeTooSkewed": "this host's clock is wrong: check its time service",
    "507": "free space",
    "hang": "the store hangs",
    **dict.fromkeys(("404 NoSuchKey", "409 OperationAborted", "429", "drop", "mute", "short", "altered"), ""),
}


OF_READS: Final = {"short", "altered", "404 NoSuchKey"}


@pytest.mark.parametrize(
    ("phase", "kind"), [(p, kind) for p in ASKED for kind in ADVICE if p == "load" or kind not in OF_READS]
)
def test_no_fault_of_an_object_store_costs_a_verified_checkpoint_or_begins_at_step_0(
    s3: Proxy, short_timeouts: None, tmp_path: Path, capfd: Any, phase: str, kind: str
) -> None:
    s3.reset()
    seconds = 1 if kind == "hang" else 30
    fresh = partial(ObjectStore, f"s3://{BUCKET}/{tmp_path.name}", Retention(2), seconds)
    text = check(fresh, answering(s3, kind, ASKED[phase]), phase, kind)
    assert "step 0" not in text
    if phase == "retention" and kind == "403 AccessDenied":
        assert re.search(r"delete .*step-00000020/manifest.json: .*check the cred", capfd.readouterr().err)
    if ADVICE[kind] and phase in {"load", "list", "save"}:
        assert ADVICE[kind] in text or "the store hangs" in text  # as on a busy host
        assert ("nothing was changed" in text) == (phase != "save")


def test_a_former_checkpoint_of_the_step_is_not_set_aside_where_it_or_its_place_is_not_known(
    tmp_path: Path,
) -> None:
    root = tmp_path / "folder"
    attempt(FolderStore(root), 20, 30)
    for call in ((Path, "read_bytes", "030/manifest"), (Path, "replace", "030.tmp")):
        saver = Saver(FolderStore(root), Mesh(0, 1, torch.device("cpu"), "node", dist.HashStore()))
        with failing(*call, "EIO"), pytest.raises(SaveError, match="check the filesystem"):
            saver.save(Snapshot(b"other", Manifest(30, 0, 1, {}, {}, {})))
        assert (intact(FolderStore(root)), FolderStore(root).quarantined()) == ([30, 20], [])
