"""`Writer`: saves checkpoints in the background, one at a time. It waits for each at most `save_seconds`,
records whether it was committed, and warns if it took longer than a preemption notice allows.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import timedelta

from trainyard_train.checkpointing.interval import Cadence
from trainyard_train.checkpointing.saver import Pending, SaveError, Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.contract import exit_seconds
from trainyard_train.elasticity.heartbeats import Heartbeats, RecordEvent
from trainyard_train.observability.rank_log import log_line


@dataclass
class Writer:
    """The current background save, and the step of the last committed one."""

    saver: Saver
    heartbeats: Heartbeats
    record: RecordEvent
    save_seconds: float
    """Seconds that a save may take at most."""
    cadence: Cadence | None
    spot_seconds: float | None
    """Shortest preemption notice of the nodes that this may run on, in seconds."""
    saved_step: int | None = None
    """Step that the run would resume from; 0 if nothing is saved yet, None before the store was read."""
    saved_at: float = field(default_factory=time.time)
    """Unix time at which that checkpoint became durable; of the start, if nothing is saved yet."""
    pending: Pending | None = field(default=None, init=False)

    def begin(self, snapshot: Snapshot, reason: str, blocked_seconds: float, pace_seconds: float) -> None:
        """Start to write a snapshot, and return; a former save must have been settled.

        Args:
            snapshot: of this rank.
            reason: for the record.
            blocked_seconds: seconds for which the training was blocked to copy the state.
            pace_seconds: see `Saver.save`.
        """
        if self.cadence:
            self.cadence.begun(blocked_seconds)
        saved = self.saver.start(snapshot, pace_seconds)
        self.pending = Pending(snapshot.manifest.step, reason, blocked_seconds, saved)

    def look(self) -> None:
        """Record a save that has ended; do not wait for one that has not."""
        if self.pending and self.pending.saved.done():
            self.settle()

    def settle(self) -> None:
        """Wait for the current save. A failure is only reported, since the former checkpoint remains.

        Raises:
            SaveError: the save has not ended after `save_seconds`; it may hang for ever.
        """
        pending, self.pending = self.pending, None
        if pending is None:
            return
        try:
            with self.heartbeats.busy("save", pending.step):
                saved = pending.saved.result(self.save_seconds)
        except TimeoutError:
            raise SaveError(
                f"the checkpoint of step {pending.step} is not durable after {self.save_seconds:g} s:"
                " the disk or the store hangs; check it, or raise timeouts.save"
            ) from None
        except SaveError as error:
            ago = max(0, round(time.time() - self.saved_at))
            self.record(
                "checkpoint_failed",
                step=pending.step,
                reason=pending.reason,
                error=str(error),
                durable_step=self.saved_step,
                durable_seconds_ago=ago,
            )
            last = f"step {self.saved_step}, {timedelta(seconds=ago)} ago" if self.saved_step else "none"
            log_line(f"checkpoint of step {pending.step} failed: {error}; last durable checkpoint: {last}")
            return
        self.saved_step, self.saved_at = pending.step, time.time()
        self.heartbeats.status.saved_step = pending.step
        if self.cadence:
            self.cadence.durable()
        self.record(
            "checkpoint",
            step=pending.step,
            reason=pending.reason,
            bytes=saved.size,
            seconds=round(saved.seconds, 4),
            blocked_seconds=round(pending.blocked_seconds, 4),
        )
        self._warn_if_late(saved.seconds)

    def _warn_if_late(self, seconds: float) -> None:
        """Warn once that a checkpoint takes longer than a preemption notice allows."""
        notice = self.spot_seconds
        if notice is None or seconds <= exit_seconds(notice):
            return
        self.spot_seconds = None
        if self.saver.mesh.is_rank0:
            log_line(
                f"a checkpoint took {seconds:.1f} s, and spot nodes here are terminated {notice:g} s after"
                " their preemption notice: a preemption loses the steps since the last checkpoint"
            )
