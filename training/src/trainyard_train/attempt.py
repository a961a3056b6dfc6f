"""One attempt of a run, whoever's loop it is: what `Run` and our trainer are both made of.

It records, sends heartbeats, saves when that is due, and leaves on notice with a checkpoint. What a
checkpoint holds, and how ranks tell each other of a notice within a step, is for those who build on it.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from trainyard_train.checkpointing.checkpoint import Checkpoint, Manifest, Retention
from trainyard_train.checkpointing.config import CheckpointConfig
from trainyard_train.checkpointing.interval import Cadence, measured_mtbf
from trainyard_train.checkpointing.saver import Saved, Saver
from trainyard_train.checkpointing.state import State, file_name
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.checkpointing.tracked import TrackedObjects
from trainyard_train.checkpointing.writer import Writer
from trainyard_train.config_base import ConfigError
from trainyard_train.elasticity.config import NOTICE, TimeoutConfig, read_seconds
from trainyard_train.elasticity.heartbeats import Heartbeats
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.elasticity.preemption import Notice
from trainyard_train.observability import origin
from trainyard_train.observability.metrics import FILE as METRICS
from trainyard_train.observability.metrics import MetricsLog, read_metrics
from trainyard_train.parallelism.mesh import Mesh

T = TypeVar("T")


class Attempt(ABC):
    """The parts of an attempt, and what is done with them."""

    steps: int = 0
    """Steps that are finished, of all attempts."""
    identity: Mapping[str, Any]
    """What a checkpoint must have in common with this run to be resumed by it."""
    state: TrackedObjects | State
    """What a checkpoint holds."""
    _told = _due = False
    """Whether any rank has a preemption notice; whether a checkpoint pays."""

    def __init__(  # noqa: PLR0917
        self,
        run_dir: Path,
        mesh: Mesh,
        notice: Notice,
        checkpoint: CheckpointConfig,
        timeouts: TimeoutConfig,
        log: MetricsLog | None,
    ) -> None:
        """Load nothing, and send no heartbeats yet.

        Args:
            run_dir: folder that all ranks share.
            mesh: the ranks.
            notice: says whether this rank is to leave.
            checkpoint: when to save, where to, and how much to keep.
            timeouts: how long to wait for others.
            log: of the metrics, at rank 0.
        """
        self.run_dir, self.mesh, self.notice, self.timeouts, self.log = run_dir, mesh, notice, timeouts, log
        self._checkpoint = checkpoint
        self.heartbeats = Heartbeats(mesh, timeouts, run_dir, self._record)
        self.memory = NodeMemory.of(checkpoint.memory_gib)
        retention = Retention(checkpoint.keep_last, checkpoint.keep_every, checkpoint.superseded == "tag")
        store = open_store(checkpoint.store or str(run_dir / "checkpoints"), retention, timeouts.store)
        self.saver = Saver(store, mesh, self.memory)
        self.cadence: Cadence | None = None
        if mesh.is_rank0 and not checkpoint.every_steps:
            lines = read_metrics(run_dir / METRICS)
            self.cadence = Cadence(measured_mtbf(lines, checkpoint.mtbf_seconds))
        spot_seconds = read_seconds(NOTICE)
        self.writer = Writer(
            self.heartbeats, self._record, timeouts.save, self.cadence, spot_seconds, mesh.is_rank0
        )

    @property
    def saved_step(self) -> int | None:
        """The step that this run would resume from; 0 if nothing is saved yet, None before it has looked."""
        return self.writer.saved_step

    def close(self) -> None:
        """Let go of threads, files and ports, which a process that goes on would keep."""
        self.heartbeats.stop()
        self.saver.close()
        if self.log:
            self.log.close()

    @abstractmethod
    def _catch_up(self) -> None:
        """Learn the numbers of all finished steps: what is committed must be in the metrics, too."""

    @abstractmethod
    def _capture(self) -> memoryview:
        """Copy what is to be saved, as this rank's file."""

    @abstractmethod
    def _position(self) -> Mapping[str, Any]:
        """What a manifest says of where in the run this is, besides the step."""

    def _reports(self) -> Mapping[str, Any]:
        """What `Saver.save` is to ask the ranks of their files; nothing if these say all."""
        return {}

    def _agree(self, what: str, own: Mapping[str, Any]) -> None:
        """See to it that all ranks have the same.

        Raises:
            ConfigError: on every rank, with what one of them has otherwise than rank 0.
        """
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

    def _load(
        self,
        restore: Callable[[Checkpoint, str], T],
        found: tuple[Checkpoint | None, list[str]] | None = None,
    ) -> tuple[Checkpoint | None, list[str], T | None]:
        """Put the newest checkpoint back; see `Saver.load`."""
        self.writer.saved_step = 0
        return self.saver.load(self.identity, restore, found)

    def _begin(self, checkpoint: Checkpoint | None, damages: list[str], **values: object) -> None:
        """All has been loaded that there is: say so, once every rank has."""
        self.writer.saved_step = self.steps
        self.heartbeats.saved(self.steps)
        self.saver.loaded()
        self._record(
            "resumed" if checkpoint else "started",
            world_size=self.mesh.world_size,
            device=self.mesh.device.type,
            damaged=damages,
            **({"bytes_from_store": checkpoint.held.bytes_from_store} if checkpoint else {}),
            **values,
            **origin.recorded(),
        )

    def _flags(self) -> list[bool]:
        """What the other ranks must know: whether this one has a notice, and finds that a checkpoint pays."""
        return [self.notice.requested, bool(self.cadence and self.cadence.due())]

    def _measure(self, seconds: float) -> None:
        """Take note of how long a step took."""
        if self.cadence:
            self.cadence.step(seconds, saving=self.writer.pending is not None)

    @property
    def _save_is_due(self) -> bool:
        every_steps = self._checkpoint.every_steps
        return self.steps % every_steps == 0 if every_steps else self._due

    def _begin_save(self) -> None:
        """Save while the training goes on."""
        self._catch_up()
        self._due = False
        self.writer.begin(self.steps, "interval", self._capture, self._write_paced)

    def _save(self, reason: str) -> None:
        """Save what is finished, unless that was done already, and wait for it.

        Raises:
            SaveError: it could not be saved.
        """
        self._catch_up()
        write = self._write if reason == "final" else self._write_paced
        self.writer.now(self.steps, reason, self._capture, write)

    def _leave(self) -> None:
        """Commit a checkpoint, since a rank was told to leave."""
        nodes = self.mesh.gather("notice", self.mesh.node if self.notice.requested else "")
        self._catch_up()
        self._record("notice", nodes=[node for node in nodes if node])
        self._save("notice")

    def _wait_for_clean_up(self) -> None:
        """Wait for what follows the last commit, unless a notice comes."""
        longest = max(self.timeouts.save, self.timeouts.store)
        self.saver.wait_for_clean_up(longest, lambda: self.notice.requested)

    def _write_paced(self, captured: memoryview) -> Future[Saved]:
        """As slowly as the settings say."""
        return self._write(captured, self._checkpoint.pace_seconds)

    def _write(self, captured: memoryview, pace_seconds: float = 0) -> Future[Saved]:
        """Begin to write what was captured."""
        manifest = Manifest(
            step=self.steps,
            world_size=self.mesh.world_size,
            mesh=self.mesh.shape,
            identity=self.identity,
            **self._position(),
        )
        name = file_name(self.mesh.rank)
        return self.saver.start(name, captured, manifest, self.state.spoiled, pace_seconds, **self._reports())

    def _record(self, event: str, **values: object) -> None:
        if self.log:
            self.log.write(event, **{"step": self.steps, **values})
