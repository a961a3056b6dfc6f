"""`Attempt`, the base class of `Run` (the user's loop) and `Trainer` (our loop): it loads and saves
checkpoints, writes metrics, sends heartbeats, and saves on a preemption notice.

Subclasses define what a checkpoint holds, and how ranks agree on a notice within a step.
"""

from __future__ import annotations

import json
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from trainyard_train.checkpointing.checkpoint import Checkpoint, Manifest, Retention
from trainyard_train.checkpointing.config import CheckpointConfig
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.checkpointing.interval import Cadence, measured_mtbf
from trainyard_train.checkpointing.saver import Limits, SaveError, Saver
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.state import State
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.checkpointing.tracked import TrackedObjects
from trainyard_train.checkpointing.writer import Writer
from trainyard_train.config_base import ConfigError
from trainyard_train.contract import FILE as METRICS
from trainyard_train.contract import origin_of, read_metrics
from trainyard_train.elasticity.config import NOTICE_VARIABLE, TimeoutConfig, read_seconds
from trainyard_train.elasticity.heartbeats import Heartbeats
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.observability.metrics import MetricsLog
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh


class Attempt(ABC):
    """One attempt of a run: from its start or restart until it ends, fails or is preempted."""

    steps: int = 0
    """Finished steps, of all attempts together."""
    identity: Mapping[str, Any]
    """Identity of the run: a checkpoint is resumed only if its identity is equal."""
    state: TrackedObjects | State
    """State that a checkpoint holds."""
    _noticed = False
    """Whether any rank has a preemption notice."""
    _due = False
    """Whether the cadence asks for a checkpoint now."""

    def __init__(  # noqa: PLR0917
        self,
        run_dir: Path,
        mesh: Mesh,
        notice: PreemptionNotice,
        checkpoint: CheckpointConfig,
        timeouts: TimeoutConfig,
        log: MetricsLog | None,
    ) -> None:
        """Load no checkpoint and send no heartbeats yet.

        Args:
            run_dir: folder that all ranks share.
            mesh: the ranks.
            notice: the preemption notice of this rank.
            checkpoint: interval, store and retention.
            timeouts: timeouts of saves, stores and heartbeats.
            log: the metrics log, on rank 0.
        """
        self.run_dir, self.mesh, self.notice, self.timeouts, self.log = run_dir, mesh, notice, timeouts, log
        self._checkpoint = checkpoint
        self.heartbeats = Heartbeats(mesh, timeouts, run_dir, self._record)
        self.memory = NodeMemory.of(checkpoint.memory_gib)
        retention = Retention(checkpoint.keep_last, checkpoint.keep_every, checkpoint.superseded == "tag")
        store = open_store(checkpoint.store or str(run_dir / "checkpoints"), retention, timeouts.store)
        limits = Limits(checkpoint.stop_after_failures, checkpoint.stop_after_seconds)
        self.saver = Saver(store, mesh, self.memory, limits)
        self.finder = Finder(
            store,
            self.saver.mesh,
            self.memory,
            checkpoint.skip_unreadable,
            checkpoint.from_scratch,
            timeouts.rendezvous,
        )
        self.cadence: Cadence | None = None
        if mesh.is_rank0 and not checkpoint.every_steps:
            lines = read_metrics(run_dir / METRICS)
            self.cadence = Cadence(measured_mtbf(lines, checkpoint.mtbf_seconds))
        spot_seconds = read_seconds(NOTICE_VARIABLE)
        self.writer = Writer(
            self.saver, self.heartbeats, self._record, timeouts.save, self.cadence, spot_seconds
        )

    @property
    def saved_step(self) -> int | None:
        """Step of the last checkpoint; 0 if there is none, None before the start has found that."""
        return self.writer.saved_step

    def close(self) -> None:
        """Stop threads and close files and ports, for a process that continues."""
        self.heartbeats.stop()
        self.saver.close()
        if self.log:
            self.log.close()

    @abstractmethod
    def _catch_up(self) -> None:
        """Write the metrics of all finished steps, before a checkpoint with them is committed."""

    @abstractmethod
    def _capture(self, manifest: Manifest) -> Snapshot:
        """Copy the state into memory, in the format of this rank's file."""

    @abstractmethod
    def _position(self) -> Mapping[str, Any]:
        """Return the manifest's fields on the position in the run, besides the step."""

    def _agree(self, what: str, own: Mapping[str, Any]) -> None:
        """Check that all ranks have the same values."""
        mesh, text = self.mesh, json.dumps(own)
        here, first = json.loads(text), json.loads(mesh.broadcast(what, text))
        problems = [
            f"{name}: rank {mesh.rank} on {mesh.node} has {here[name]!r}, rank 0 has {first[name]!r};"
            " give all ranks the same configuration"
            for name in here
            if here[name] != first[name]
        ]
        found = mesh.gather(what, "\n".join(problems))
        if different := [text for text in found if text]:
            mesh.shutdown_barrier()
            raise ConfigError(different[0].splitlines())

    def _begin(self, checkpoint: Checkpoint | None, damages: list[str], **values: object) -> None:
        """Write the first event (`started` or `resumed`), once every rank has loaded."""
        self.writer.saved_step = self.steps
        if checkpoint:
            self.writer.saved_at = checkpoint.manifest.created
        self.heartbeats.status.saved_step = self.steps
        self.saver.loaded(checkpoint)
        self._record(
            "resumed" if checkpoint else "started",
            world_size=self.mesh.world_size,
            device=self.mesh.device.type,
            damaged=damages,
            **({"bytes_from_store": checkpoint.held.bytes_from_store} if checkpoint else {}),
            **values,
            **({"origin": found} if (found := origin_of()) else {}),
        )

    def keep(self, reason: str) -> None:
        """Save the finished steps, unless they are saved already, and never delete that checkpoint.

        All ranks must call it.

        Args:
            reason: for those who list the checkpoints.

        Raises:
            SaveError: it could not be saved or kept; former checkpoints remain.
        """
        self._save("asked")
        self.saver.pin(self.steps, reason)

    def _keep_if_best(self, values: Mapping[str, float]) -> None:
        """Save and keep the finished steps if a metric of theirs is among the best."""
        best = self._checkpoint.keep_best
        if best is None or best.metric not in values:
            return
        value = values[best.metric]
        try:
            if self.saver.is_best(best, value):
                self._save("best")
                self.saver.pin_best(self.steps, best, value)
        except SaveError as error:
            if self.mesh.is_rank0:
                log_line(f"step {self.steps} is not kept as one with the best {best.metric}: {error}")

    def _flags(self) -> list[bool]:
        """Return this rank's flags for the others: it has a preemption notice, and a checkpoint is due."""
        return [self.notice.requested, bool(self.cadence and self.cadence.due())]

    def _measure(self, seconds: float) -> None:
        """Pass the duration of a step to the cadence, and its number to the agent."""
        self.heartbeats.status.step = self.steps
        if self.cadence:
            self.cadence.step(seconds, saving=self.writer.pending is not None)

    @property
    def _save_is_due(self) -> bool:
        every_steps = self._checkpoint.every_steps
        return self.steps % every_steps == 0 if every_steps else self._due

    def _begin_save(self) -> None:
        """Start a save in the background."""
        if self.saved_step == self.steps:  # an evaluation has saved it as one of the best
            return
        self._catch_up()
        self._due = False
        self._write("interval")

    def _save(self, reason: str) -> None:
        """Save the finished steps, unless they are saved already, and wait for it."""
        self._catch_up()
        self.writer.settle()
        if self.saved_step == self.steps:
            return
        self._write(reason)
        self.writer.settle()
        if self.saved_step != self.steps:
            raise SaveError(f"step {self.steps} could not be saved")

    def _save_on_notice(self) -> None:
        """Commit a checkpoint because a rank has a preemption notice."""
        nodes = self.mesh.gather("notice", self.mesh.node if self.notice.requested else "")
        self._catch_up()
        self._record("notice", nodes=[node for node in nodes if node])
        self._save("notice")

    def _wait_for_clean_up(self) -> None:
        """Wait for the clean-up after the last commit, unless a preemption notice arrives."""
        longest = max(self.timeouts.save, self.timeouts.store)
        self.saver.wait_for_clean_up(longest, lambda: self.notice.requested)

    def _write(self, reason: str) -> None:
        """Copy the state once a former save has ended, and start to write it: the last one at full speed."""
        self.writer.settle()
        manifest = Manifest(
            step=self.steps,
            world_size=self.mesh.world_size,
            mesh={"data": self.mesh.world_size},
            identity=self.identity,
            **self._position(),
        )
        begin = time.monotonic()
        snapshot = self._capture(manifest)
        pace_seconds = 0.0 if reason == "final" else self._checkpoint.pace_seconds
        self.writer.begin(snapshot, reason, time.monotonic() - begin, pace_seconds)

    def _record(self, event: str, **values: object) -> None:
        if self.log:
            self.log.write(event, **{"step": self.steps, **values})
