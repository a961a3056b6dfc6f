"""`Saver`: all ranks save one checkpoint together in the background."""

from __future__ import annotations

import json
import math
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from itertools import count
from typing import Any, Final, Literal, NamedTuple

from trainyard_train.checkpointing.checkpoint import (
    OWNER,
    Checkpoint,
    CheckpointStore,
    DamagedError,
    FormatError,
    InUseError,
    Manifest,
    explained,
    is_full,
    step_name,
)
from trainyard_train.checkpointing.config import KeepBest
from trainyard_train.checkpointing.digests import FileEntry
from trainyard_train.checkpointing.snapshot import Snapshot, merge
from trainyard_train.checkpointing.tensor_files import file_name
from trainyard_train.config_base import RefusalError
from trainyard_train.contract import EXIT_NOT_DURABLE
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh


class SaveError(OSError):
    """No checkpoint was made; earlier committed checkpoints remain."""


class NotDurableError(RefusalError):
    """No checkpoint became durable for as long as the limits allow."""

    exit_code = EXIT_NOT_DURABLE


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


@dataclass(frozen=True)
class Limits:
    """How long saves may fail before the run ends; 0: for ever."""

    failures: int = 0
    """Saves in a row."""
    seconds: float = 0
    """Seconds without a durable checkpoint, at a save that fails."""

    def are_reached(self, failures: int, seconds: float) -> bool:
        return 0 < self.failures <= failures or 0 < self.seconds <= seconds


class _Verdict(NamedTuple):
    """How a save has ended."""

    kind: Literal["", "again", "failed", "not durable", "taken"] = ""
    """Empty if it is committed; `again`: there is room now."""
    text: str = ""


_ERRORS: Final[Mapping[str, type[Exception]]] = {
    "failed": SaveError,
    "not durable": NotDurableError,
    "taken": InUseError,
}
_LOOK_SECONDS: Final = 0.1
_VERIFIED: Final = 2
"""Number of verified checkpoints that remain when room is made for another one."""


class Saver:
    """Coordinates the ranks through the store, so that no collective of the training is disturbed."""

    def __init__(
        self,
        store: CheckpointStore,
        mesh: Mesh,
        memory: NodeMemory | None = None,
        limits: Limits = Limits(),
    ) -> None:
        """Begin with nothing saved.

        Args:
            store: store of the checkpoints.
            mesh: the ranks.
            memory: memory of the node that captures were written to; None: it keeps nothing.
            limits: how long saves may fail.
        """
        self.store, self.memory = store, memory or NodeMemory()
        self.mesh = mesh.with_own_connection("saver")
        self._save_numbers, self._asked = count(), count()
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="saver")
        self._cleaner = ThreadPoolExecutor(1, thread_name_prefix="cleaner")
        self._clean_up: Future[None] | None = None
        """The clean-up after the last commit; None on ranks other than 0."""
        self.limits = limits
        self._order: list[int] = []
        """Steps that this attempt has verified: those committed, the last one first, and the loaded one."""
        self._loaded_step = 0
        self._owner = self._last_key = ""
        self._failures, self._durable_at = 0, time.monotonic()
        """Saves that have failed since one became durable, and when that was, by the monotonic clock."""

    def start(self, snapshot: Snapshot, pace_seconds: float = 0) -> Future[Saved]:
        """Save in the background; one checkpoint after the other. See `save`."""
        return self._thread.submit(self.save, snapshot, time.monotonic(), pace_seconds)

    def close(self) -> None:
        """Start no save after those begun, and admit other runs; waits for none, since a disk may hang."""
        self._thread.shutdown(wait=False)
        self._cleaner.shutdown(wait=False)
        self.store.unlock()

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

        On a full disk, superseded checkpoints are deleted for it, as long as two verified ones remain.

        Args:
            snapshot: of this rank.
            begin: when the save began, by the monotonic clock; now if not given.
            pace_seconds: least time from then to the commit; the rest is slept.

        Raises:
            SaveError: on every rank, if any of them failed.
            NotDurableError: on every rank, if saves have failed for as long as the limits allow.
            InUseError: on every rank, if another run has taken the store over.
        """
        begin = time.monotonic() if begin is None else begin
        while True:
            verdict, size = self._try_to_save(snapshot, begin + pace_seconds)
            if verdict.kind != "again":
                break
        if verdict.kind:
            raise _ERRORS[verdict.kind](verdict.text)
        self.memory.commit()
        if self.mesh.is_rank0:
            self._begin_clean_up()
        return Saved(size, time.monotonic() - begin)

    def loaded(self, checkpoint: Checkpoint | None = None) -> None:
        """Wait until every rank has loaded; only then may anything be saved, and so be pruned.

        From now on no other attempt may commit.
        """
        if checkpoint:
            self._order = [checkpoint.manifest.step]
        self._loaded_step = self._order[0] if self._order else 0
        self._durable_at = time.monotonic()
        self.mesh.gather("loaded", "")
        if self.mesh.is_rank0:
            self._owner = f"{secrets.token_hex(8)} on {self.mesh.node}, since {time.ctime()}"
            try:
                self.store.put(OWNER, self._owner.encode())
            except OSError as error:
                self._owner = ""
                log_line(f"{self.store.where} cannot be written to: {explained(error)}")
            try:
                self.store.spare(self._order, copied=True)  # before the next commit, which may be hours away
            except OSError as error:
                log_line(f"the bucket's rule may delete what was loaded: {explained(error)}")

    def pin(self, step: int, reason: str) -> None:
        """Keep a committed checkpoint for ever; all ranks call it.

        Raises:
            SaveError: on every rank, if that could not be noted.
        """
        self._at_rank0(lambda: self.store.pin(step, {"reason": reason}))

    def is_best(self, best: KeepBest, value: float) -> bool:
        """Whether a metric's value is among the best ones that are kept; the same on all ranks."""

        def look() -> bool:
            values = sorted(map(best.badness, self._best_values(best).values()))
            return math.isfinite(value) and (len(values) < best.n or best.badness(value) < values[best.n - 1])

        return self._at_rank0(look)

    def pin_best(self, step: int, best: KeepBest, value: float) -> None:
        """Keep a committed checkpoint while its value is among the best ones; all ranks call it."""

        def pin() -> None:
            self.store.pin(step, {"reason": "best", "metric": best.metric, "value": value})
            values = self._best_values(best)
            for worse in sorted(values, key=lambda each: best.badness(values[each]))[best.n :]:
                self.store.unpin(worse)
            self._begin_clean_up()

        self._at_rank0(pin)

    def _best_values(self, best: KeepBest) -> dict[int, float]:
        pins = self.store.pins().items()
        return {step: float(why["value"]) for step, why in pins if why.get("metric") == best.metric}

    def _at_rank0(self, work: Callable[[], bool | None]) -> bool:
        """Do something at rank 0; returns its result on all ranks.

        Raises:
            SaveError: on every rank, if it failed.
        """
        answer: dict[str, Any] = {}
        if self.mesh.is_rank0:
            try:
                answer = {"result": bool(work())}
            except (OSError, ValueError) as error:
                answer = {"error": explained(error) if isinstance(error, OSError) else str(error)}
        answer = json.loads(self.mesh.broadcast(f"rank0/{next(self._asked)}", json.dumps(answer)))
        if "error" in answer:
            raise SaveError(answer["error"])
        return bool(answer["result"])

    def _try_to_save(self, snapshot: Snapshot, earliest: float) -> tuple[_Verdict, int]:
        """Save once; returns rank 0's verdict, and the bytes that all ranks wrote together."""
        key = f"save/{next(self._save_numbers)}"
        staged, own = self._begin(snapshot.manifest.step) if self.mesh.is_rank0 else ("", {})
        staged = self.mesh.broadcast(f"{key}/draft", staged)
        if staged:
            own = self._write(staged, snapshot)
            own["state"] = snapshot.report(self.mesh, key)
        reports = [json.loads(text) for text in self.mesh.gather(key, json.dumps(own))]
        time.sleep(max(0.0, earliest - time.monotonic()))
        verdict = self._conclude(staged, reports, snapshot.manifest) if self.mesh.is_rank0 else _Verdict()
        verdict = _Verdict(*json.loads(self.mesh.broadcast(f"{key}/done", json.dumps(verdict))))
        if self.mesh.is_rank0:
            self._forget_former(key)
        return verdict, sum(each["entry"]["size"] for each in reports if "entry" in each)

    def _begin_clean_up(self) -> None:
        """Do what follows a commit beside the training; what has not begun yet, this one does too."""
        if self._clean_up:
            self._clean_up.cancel()
        with suppress(RuntimeError):  # this process is about to end: the next save does it
            self._clean_up = self._cleaner.submit(self._clean_up_after, [*self._order])

    def _clean_up_after(self, own: list[int]) -> None:
        try:
            self.store.clean_up(self._known(own))
        except OSError as error:
            why = explained(error)
            log_line(f"the checkpoint of step {own[0]} is committed, but the clean-up after it failed: {why}")

    def _known(self, own: list[int]) -> list[int]:
        """Steps of this run, from the one that was verified last to the oldest.

        A higher step than the loaded one that this attempt has not committed is not of this run's past.
        """
        return [*own, *(step for step in self.store.committed() if step < self._loaded_step)]

    def _forget_former(self, key: str) -> None:
        """Delete the last save's keys from the store; that this save ended shows that no rank needs them."""
        former, self._last_key = self._last_key, key
        for part in ("draft", "done", "all", "state", "state-digest", *range(self.mesh.world_size)):
            if former:
                self.mesh.store.delete_key(f"{former}/{part}")

    def _begin(self, step: int) -> tuple[str, dict[str, Any]]:
        """Return the staging folder, or an empty one and a report."""
        try:
            return self.store.begin(step), {}
        except OSError as error:
            return "", self._report(error)

    def _write(self, staged: str, snapshot: Snapshot) -> dict[str, Any]:
        if problem := snapshot.problem():
            return {"error": f"{self.mesh.own_name}: {problem}"}
        try:
            entry = self.store.write(staged, file_name(self.mesh.rank), snapshot.data)
        except OSError as error:
            return self._report(error)
        return {"entry": asdict(entry)}

    def _report(self, error: OSError) -> dict[str, Any]:
        return {"error": f"{self.mesh.own_name}: {explained(error)}", "full": is_full(error)}

    def _conclude(self, staged: str, reports: Sequence[Mapping[str, Any]], manifest: Manifest) -> _Verdict:
        """Commit at rank 0, or delete the staging folder and make room where that helps."""
        failed = [each for each in reports if "error" in each]
        if not failed:
            files = {file_name(rank): FileEntry(**each["entry"]) for rank, each in enumerate(reports)}
            state = merge(report["state"] for report in reports)
            try:
                if other := self._other_owner():
                    return self._discarded(staged, _Verdict("taken", other))
                self.store.commit(staged, replace(manifest, files=files, state=state))
            except OSError as error:
                failed = [self._report(error)]
            else:
                self._committed(manifest.step, sum(entry.size for entry in files.values()))
                return _Verdict()
        text = "; ".join(each["error"] for each in failed)
        verdict = self._discarded(staged, _Verdict("failed", text))
        if any(each.get("full") for each in failed) and self._make_room():
            return _Verdict("again", text)
        self._failures += 1
        seconds = time.monotonic() - self._durable_at
        if not self.limits.are_reached(self._failures, seconds):
            return verdict
        durable = f"step {self._order[0]} in {self.store.where}" if self._order else "none"
        return _Verdict(
            "not durable",
            f"{self._failures} checkpoints in a row have failed, and none has become durable for"
            f" {seconds:.0f} s: {text}; the last durable one: {durable}; ending, as"
            " checkpoint.stop_after_failures or .stop_after_seconds asks for",
        )

    def _discarded(self, staged: str, verdict: _Verdict) -> _Verdict:
        if staged:
            self.store.discard(staged)
        return verdict

    def _committed(self, step: int, size: int) -> None:
        if not self._failures and len(self._order) <= 1:
            self._warn_if_small(size)
        self._failures, self._durable_at = 0, time.monotonic()
        self._order = [step, *(each for each in self._order if each != step)]

    def _warn_if_small(self, size: int) -> None:
        """Warn where there is no room for what is retained, one that is written, and one that is deleted."""
        with suppress(OSError):
            room, needed = self.store.capacity(), (self.store.retention.last + 2) * size
            if room is not None and room < needed:
                log_line(
                    f"{self.store.where} has {room / 2**30:.3g} GiB; checkpoint.keep_last:"
                    f" {self.store.retention.last} needs {needed / 2**30:.3g} GiB (keep_last + 2 checkpoints)"
                )

    def _other_owner(self) -> str:
        """Who may commit, if that is no longer this attempt; empty if it is."""
        if not self._owner:
            return ""
        try:
            found = self.store.read(OWNER).decode(errors="replace")
        except FileNotFoundError:
            return ""
        if found == self._owner:
            return ""
        return (
            f"{self.store.where} was taken over by another run ({found}): this one ends, and its last step is"
            " not saved; give each run its own run_dir"
        )

    def _make_room(self) -> bool:
        """Delete the oldest superseded checkpoint, if two verified ones remain; returns whether it did."""
        if self._clean_up:
            wait([self._clean_up])
        try:
            there, pinned = set(self.store.committed()), self.store.pinned()
            order = [step for step in self._known(self._order) if step in there]
            found: dict[int, bool | None] = {}
            for step in order:
                if [*found.values()].count(True) < _VERIFIED:
                    found[step] = self._is_intact(step)
            spare = [step for step in order if found.get(step, False) is False and step not in pinned]
            spare = [step for step in spare if not self.store.retention.is_permanent(step)]
            if [*found.values()].count(True) < _VERIFIED or not spare:
                return False
            self.store.remove(spare[-1])
        except OSError as error:
            log_line(f"{self.store.where} is full, and nothing can be deleted: {explained(error)}")
            return False
        log_line(f"{self.store.where} is full: deleted {step_name(spare[-1])} to save a newer one")
        return True

    def _is_intact(self, step: int) -> bool | None:
        """Whether this attempt has loaded or committed it, or it is read intact; None: it is unreadable."""
        if step in self._order:
            return True
        try:
            self.store.open(step).verify()
        except (DamagedError, FormatError):
            return False
        except OSError:
            return None
        return True
