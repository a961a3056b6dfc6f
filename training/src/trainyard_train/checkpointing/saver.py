"""`Saver`: all ranks save one checkpoint together in the background."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, Final

from trainyard_train.checkpointing.checkpoint import CheckpointStore, Manifest, explained
from trainyard_train.checkpointing.digests import FileEntry
from trainyard_train.checkpointing.snapshot import Snapshot, merge
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh


class SaveError(OSError):
    """No checkpoint was made; earlier committed checkpoints remain."""


@dataclass(frozen=True)
class Saved:
    """A checkpoint that was committed."""

    size: int
    """Bytes that all ranks wrote together."""
    seconds: float
    """Seconds from the start of the write, after the copy was made, until the checkpoint was durable."""


@dataclass(frozen=True)
class Pending:
    """A checkpoint that is written in the background."""

    step: int
    reason: str
    blocked_seconds: float
    """Seconds for which the training was blocked to copy the state."""
    saved: Future[Saved]
    """Resolves when the checkpoint is committed, or raises SaveError."""


_LOOK_SECONDS: Final = 0.1


class Saver:
    """Coordinates the ranks through the store, so that no collective of the training is disturbed."""

    def __init__(self, store: CheckpointStore, mesh: Mesh, memory: NodeMemory | None = None) -> None:
        """Begin with nothing saved.

        Args:
            store: store of the checkpoints.
            mesh: the ranks.
            memory: memory of the node that captures were written to; None: it keeps nothing.
        """
        self.store, self.memory = store, memory or NodeMemory()
        self.mesh = replace(mesh, store=mesh.store.clone())  # waiting on one connection blocks all its users
        self._save_numbers = count()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._cleaner = ThreadPoolExecutor(1, thread_name_prefix="cleaner")
        self._clean_up: Future[None] | None = None
        """The clean-up after the last commit; None on ranks other than 0."""

    def start(self, snapshot: Snapshot, pace_seconds: float = 0) -> Future[Saved]:
        """Save in the background; one checkpoint after the other. See `save`."""
        return self._thread.submit(self.save, snapshot, time.monotonic(), pace_seconds)

    def close(self) -> None:
        """Start no save after those begun; waits for none, since a disk or a store may hang."""
        self._thread.shutdown(wait=False)
        self._cleaner.shutdown(wait=False)

    def wait_for_clean_up(self, seconds: float, cut_short: Callable[[], bool] = lambda: False) -> None:
        """Wait for what follows the last commit, which no save waits for.

        Args:
            seconds: maximum seconds to wait.
            cut_short: asked whether to wait no longer.
        """
        deadline = time.monotonic() + seconds
        while (cleaning := self._clean_up) and not cleaning.done():
            if cut_short() or time.monotonic() >= deadline:
                log_line("exiting before all superseded checkpoints are deleted; the next save deletes them")
                return
            wait([cleaning], _LOOK_SECONDS)

    def save(self, snapshot: Snapshot, begin: float | None = None, pace_seconds: float = 0) -> Saved:
        """Write the snapshots of all ranks as one checkpoint.

        Args:
            snapshot: of this rank.
            begin: when the save began, by the monotonic clock; now if not given.
            pace_seconds: least time from then to the commit; the rest is slept.

        Raises:
            SaveError: on every rank, if any of them failed.
        """
        begin = time.monotonic() if begin is None else begin
        number, step = next(self._save_numbers), snapshot.manifest.step
        key = f"save/{number}"
        staged = self.mesh.broadcast(f"{key}/draft", self._begin(step) if self.mesh.is_rank0 else "")
        written: dict[str, Any] = self._write(staged, snapshot) if staged else {"error": "see rank 0"}
        if staged:
            written["state"] = snapshot.report(self.mesh, key)
        reports = [json.loads(text) for text in self.mesh.gather(key, json.dumps(written))]
        time.sleep(max(0.0, begin + pace_seconds - time.monotonic()))
        error = self._commit(staged, reports, snapshot.manifest) if self.mesh.is_rank0 else ""
        error = self.mesh.broadcast(f"{key}/done", error)
        seconds = time.monotonic() - begin
        if self.mesh.is_rank0 and number:
            self._forget(f"save/{number - 1}")
        if error:
            raise SaveError(error)
        self.memory.commit()
        if self.mesh.is_rank0:
            self._begin_clean_up(step)
        return Saved(sum(each["entry"]["size"] for each in reports), seconds)

    def loaded(self) -> None:
        """Wait until every rank has loaded; only then may anything be saved, and so be pruned."""
        self.mesh.gather("loaded", "")

    def _begin_clean_up(self, step: int) -> None:
        """Do what follows a commit beside the training; what has not begun yet, this one does too."""
        if self._clean_up:
            self._clean_up.cancel()
        with suppress(RuntimeError):  # this process is about to end: the next save does it
            self._clean_up = self._cleaner.submit(self._clean_up_after, step)

    def _clean_up_after(self, step: int) -> None:
        try:
            self.store.clean_up(step)
        except OSError as error:
            why = explained(error)
            log_line(f"the checkpoint of step {step} is committed, but the clean-up after it failed: {why}")

    def _forget(self, key: str) -> None:
        """Delete a save's keys from the store; that this save ended shows that no rank needs them."""
        for part in ("draft", "done", "all", "state", "state-digest", *range(self.mesh.world_size)):
            self.mesh.store.delete_key(f"{key}/{part}")

    def _begin(self, step: int) -> str:
        try:
            return self.store.begin(step)
        except OSError as error:
            log_line(f"the checkpoint of step {step} cannot be started: {explained(error)}")
            return ""

    def _write(self, staged: str, snapshot: Snapshot) -> dict[str, Any]:
        if problem := snapshot.problem():
            return {"error": f"{self.mesh.own_name}: {problem}"}
        try:
            entry = self.store.write(staged, file_name(self.mesh.rank), snapshot.data)
        except OSError as error:
            return {"error": f"{self.mesh.own_name}: {explained(error)}"}
        return {"entry": asdict(entry)}

    def _commit(self, staged: str, reports: Sequence[Mapping[str, Any]], manifest: Manifest) -> str:
        """Commit, or delete the staging folder; returns the error."""
        errors = [report["error"] for report in reports if "error" in report]
        if not errors:
            files = {file_name(rank): FileEntry(**each["entry"]) for rank, each in enumerate(reports)}
            state = merge(report["state"] for report in reports)
            try:
                self.store.commit(staged, replace(manifest, files=files, state=state))
            except OSError as error:
                errors.append(explained(error))
        if errors and staged:
            self.store.discard(staged)
        return "; ".join(errors)
