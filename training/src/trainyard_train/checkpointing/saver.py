"""`Saver`: all ranks save one checkpoint together in the background, load the newest whole one, and
quarantine damaged ones.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, Final, TypeVar

from trainyard_train.checkpointing.checkpoint import (
    Checkpoint,
    CheckpointStore,
    DamagedError,
    Manifest,
    step_name,
)
from trainyard_train.checkpointing.digests import FileEntry
from trainyard_train.checkpointing.snapshot import Snapshot, merge
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh

T = TypeVar("T")


class SaveError(OSError):
    """No checkpoint was made; earlier committed checkpoints remain."""


class MismatchError(ValueError):
    """A checkpoint is of another run: the message lists each setting that differs."""


class UnsharedError(OSError):
    """A rank cannot read what rank 0 can: the checkpoint is whole, and is not quarantined."""


DATASET: Final = "dataset"
"""Key of a run's identity: identifies the dataset, as far as it determines the order of samples."""
_WHOSE: Final = {DATASET: "the present data"}
_ADVICE: Final = {
    DATASET: "; with other data the order of samples would change: set data.path to the previous data, or"
    " start a new run"
}


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
        self._attempts = count()
        """Numbers the attempts at finding a checkpoint and at loading one."""
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

    def newest(
        self, identity: Mapping[str, Any], *, whole: bool = False
    ) -> tuple[Checkpoint | None, list[str]]:
        """The checkpoint to resume from, the same on all ranks, and what was wrong with newer ones.

        The ranks look at the sizes of all files; what is in them is verified when it is loaded. Rank 0
        quarantines damaged checkpoints and deletes staging data of dead runs.

        Args:
            identity: values that the checkpoint must have in common with this run.
            whole: verify all that is in it now, too, each rank a part of the files. It is always done where
                there is no older one to fall back to after a load that fails.

        Raises:
            MismatchError: the checkpoint is of a run with another identity.
            UnsharedError: on every rank, if one cannot read a checkpoint that rank 0 finds whole.
        """
        damages: list[str] = []
        if self.mesh.is_rank0:
            self.store.collect_garbage()
        checkpoint = None
        while True:
            key = f"find/{next(self._attempts)}"
            steps = self.store.committed() if self.mesh.is_rank0 else []
            chosen = json.loads(self.mesh.broadcast(f"{key}/steps", json.dumps(steps[:2])))
            if not chosen:
                break
            checkpoint, damage = self._look_at_part(chosen[0], whole or len(chosen) == 1)
            if not any(found := self.mesh.gather(f"{key}/damage", damage)):
                break
            self._quarantine_everywhere(key, chosen[0], next(filter(None, found)), damages)
            checkpoint = None
        damages = json.loads(self.mesh.broadcast(f"{key}/damages", json.dumps(damages)))
        if checkpoint and (mismatch := _mismatch(checkpoint, identity)):
            self.mesh.shutdown_barrier()
            raise MismatchError(mismatch)
        return checkpoint, damages

    def load(
        self,
        identity: Mapping[str, Any],
        restore: Callable[[Checkpoint, str], T],
        found: tuple[Checkpoint | None, list[str]] | None = None,
    ) -> tuple[Checkpoint | None, list[str], T | None]:
        """Restore the newest whole checkpoint.

        Args:
            identity: see `newest`.
            restore: takes a checkpoint and a prefix for keys; raises DamagedError on all ranks if it is
                damaged.
            found: result of `newest`, which is called if it is not given.

        Returns:
            the checkpoint, what was wrong with newer ones, and what `restore` returned.

        Raises:
            MismatchError: the checkpoint is of a run with another identity.
            UnsharedError: on every rank, if one cannot read a checkpoint that rank 0 finds whole, or if one
                that was whole a moment ago is not, and there is no other.
        """
        checkpoint, damages = found or self.newest(identity)
        while checkpoint:
            key = f"load/{next(self._attempts)}"
            try:
                restored = restore(checkpoint, key)
                checkpoint.held.files.clear()  # the next captures overwrite this memory
                return checkpoint, damages, restored
            except DamagedError as error:
                self._quarantine_everywhere(key, checkpoint.manifest.step, str(error), damages)
            checkpoint, more = self.newest(identity)
            damages = [*json.loads(self.mesh.broadcast(f"{key}/damages", json.dumps(damages))), *more]
            if not checkpoint:
                raise UnsharedError(
                    f"{damages[-1]}; part of it was loaded: start again, without a checkpoint"
                )
        return None, damages, None

    def loaded(self) -> None:
        """Wait until every rank has loaded; only then may anything be saved, and so be pruned."""
        self.mesh.gather("loaded", "")

    def _look_at_part(self, step: int, whole: bool) -> tuple[Checkpoint | None, str]:
        """Look at the files that are this rank's to look at; returns what is wrong, too."""
        try:
            checkpoint = self.store.open(step)
            checkpoint.held.files.update(self._held(checkpoint.manifest))
            readers = checkpoint.readers(self.mesh.world_size)
            mine = [name for name, reader in readers.items() if reader == self.mesh.rank]
            for name in mine:
                checkpoint.file(name).check_size()
            if whole:
                checkpoint.verify(mine)
        except DamagedError as error:
            return None, f"{error} (reported by {self._own_name})"
        return checkpoint, ""

    def _held(self, manifest: Manifest) -> dict[str, memoryview]:
        """The files of a checkpoint that this node's memory has."""
        found = self.memory.find({name: each.sha256 for name, each in manifest.files.items()})
        return {name: each for name, each in found.items() if len(each) == manifest.files[name].size}

    def _quarantine_everywhere(self, key: str, step: int, reason: str, damages: list[str]) -> None:
        """Quarantine a damaged checkpoint, on rank 0.

        Raises:
            UnsharedError: on every rank, if rank 0 finds it whole.
        """
        verdict = self._checked_by_rank0(step, reason, damages) if self.mesh.is_rank0 else ""
        if verdict := self.mesh.broadcast(f"{key}/verdict", verdict):
            self.mesh.shutdown_barrier()
            raise UnsharedError(verdict)

    def _checked_by_rank0(self, step: int, reason: str, damages: list[str]) -> str:
        """Quarantine a checkpoint if rank 0 finds it damaged too; else return why the ranks disagree.

        A rank whose folder is not the one that all share, or whose node alters what it reads, must not cost
        the others what they have.
        """
        if step not in self.store.committed():  # a running process has deleted it, and has a newer one
            return ""
        try:
            self.store.open(step).verify()
        except DamagedError:
            damages.append(self._quarantine(step, reason))
            return ""
        return (
            f"{step_name(step)} in {self.store.where}: {reason}, but rank 0 on {self.mesh.node} reads it"
            " intact: check that all ranks share run_dir, and check the node that reported this; nothing was"
            " changed"
        )

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
            log_line(f"the checkpoint of step {step} is committed, but the clean-up after it failed: {error}")

    def _forget(self, key: str) -> None:
        """Delete a save's keys from the store; that this save ended shows that no rank needs them."""
        for part in ("draft", "done", "all", "state", "state-digest", *range(self.mesh.world_size)):
            self.mesh.store.delete_key(f"{key}/{part}")

    def _begin(self, step: int) -> str:
        try:
            return self.store.begin(step)
        except OSError as error:
            log_line(f"the checkpoint of step {step} cannot be started: {error}")
            return ""

    def _write(self, staged: str, snapshot: Snapshot) -> dict[str, Any]:
        if problem := snapshot.problem():
            return {"error": f"{self._own_name}: {problem}"}
        try:
            entry = self.store.write(staged, file_name(self.mesh.rank), snapshot.data)
        except OSError as error:
            return {"error": f"{self._own_name}: {error}"}
        return {"entry": asdict(entry)}

    @property
    def _own_name(self) -> str:
        return f"rank {self.mesh.rank} on {self.mesh.node}"

    def _commit(self, staged: str, reports: Sequence[Mapping[str, Any]], manifest: Manifest) -> str:
        """Commit, or delete the staging folder; returns the error."""
        errors = [report["error"] for report in reports if "error" in report]
        if not errors:
            files = {file_name(rank): FileEntry(**each["entry"]) for rank, each in enumerate(reports)}
            state = merge(report["state"] for report in reports)
            try:
                self.store.commit(staged, replace(manifest, files=files, state=state))
            except OSError as error:
                errors.append(str(error))
        if errors and staged:
            self.store.discard(staged)
        return "; ".join(errors)

    def _quarantine(self, step: int, reason: str) -> str:
        damage = f"{step_name(step)}: {reason}; quarantined as {self.store.quarantine(step)}"
        log_line(f"skipping a damaged checkpoint: {damage}")
        return damage


def _mismatch(checkpoint: Checkpoint, identity: Mapping[str, Any]) -> str:
    """Differences between a checkpoint and a run that would resume from it, as text; empty if none."""
    if checkpoint.manifest.state.get("imported"):  # imported checkpoints have no run's identity
        return ""
    saved = checkpoint.manifest.identity
    differences = [
        f"{key}: the checkpoint has {saved.get(key)!r}, {_WHOSE.get(key, 'the configuration')}"
        f" {identity.get(key)!r}{_ADVICE.get(key, '')}"
        for key in sorted({*saved, *identity})
        if saved.get(key) != identity.get(key)
    ]
    if not differences:
        return ""
    what = (
        f"{checkpoint.name} in {checkpoint.store.where} belongs to another run; choose another run_dir, or"
        " change:"
    )
    return "\n".join([what, *differences])
