"""The training loop: exact to the bit over any number of interruptions."""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from concurrent.futures import Future
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from torch import nn

from trainyard_train.checkpointing.checkpoint import Manifest, Retention
from trainyard_train.checkpointing.interval import Cadence, measured_mtbf
from trainyard_train.checkpointing.saver import DATASET, Saved, Saver
from trainyard_train.checkpointing.state import State, file_name
from trainyard_train.checkpointing.stores import open_store
from trainyard_train.checkpointing.writer import Writer
from trainyard_train.computation import Computation, PipelinedComputation
from trainyard_train.config import TrainConfig
from trainyard_train.config_base import ConfigError
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.data.samples import Dataset
from trainyard_train.elasticity.config import NOTICE, read_seconds
from trainyard_train.elasticity.heartbeats import Heartbeats
from trainyard_train.elasticity.node_memory import NodeMemory
from trainyard_train.elasticity.preemption import Notice
from trainyard_train.models.build import build_model, layers_of, tensor_plan
from trainyard_train.observability import origin
from trainyard_train.observability.config import ExportConfig
from trainyard_train.observability.device import Tracer, flops_of, memory, peak_of
from trainyard_train.observability.metrics import FILE as METRICS
from trainyard_train.observability.metrics import Listener, MetricsLog, read_metrics
from trainyard_train.optim.optimizer import build_optimizer, set_rate
from trainyard_train.optim.schedule import Schedule, doubts, schedule_for
from trainyard_train.parallelism.fabric import measure
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.parallelism.parallelize import parallelize, unwrap
from trainyard_train.update import Late, LossScale, Totals, Update

FINAL = "final.json"
EVALUATED_AT_ONCE = 512
"""Samples per rank at most; and no more than a micro-batch of a step, which fits into memory."""


class DivergedError(ArithmeticError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class StepMetrics:
    """Metrics of one step, aggregated over all ranks."""

    loss: float
    """Mean over the targets, in nats."""
    accuracy: float
    """Part of the targets, 0 to 1."""
    gradient_norm: float
    """Of all parameters together, before it was clipped."""


@dataclass(frozen=True)
class _Unread:
    """A step whose numbers are still on their way from the device, and what the host knows of it."""

    step: int
    samples: int
    rate: float
    seconds: float
    totals: Late


class Trainer:
    """One run, or one attempt of it. Construct it, then `run` it."""

    def __init__(
        self,
        config: TrainConfig,
        mesh: Mesh,
        notice: Notice,
        listeners: Sequence[Listener] = (),
        *,
        read_late: bool | None = None,
    ) -> None:
        """Make all that a run consists of.

        Args:
            config: of the run.
            mesh: its ranks.
            notice: says whether this rank is to leave.
            listeners: called at rank 0 with each line of the metrics.
            read_late: whether the numbers of a step are read while the next one is computed; if not given,
                where the device works on while the host does something else.
        """
        config.parallel.check(mesh.world_size)
        mesh = mesh.shaped(config.parallel.tensor, config.parallel.pipeline)
        self.config, self.mesh, self.notice = config, mesh, notice
        self.step = 0
        self.samples = 0
        self.skipped = 0
        """Steps that an overflow of float16 has cost; the schedule does not count them."""
        self.metrics: StepMetrics | None = None
        """Of the last step that was read."""
        self._read_late = mesh.device.type != "cpu" if read_late is None else read_late
        self._unread: _Unread | None = None
        self._told = self._due = False
        """Whether any rank has a preemption notice; whether a checkpoint pays."""
        self.log = _open_log(config, listeners) if mesh.is_rank0 else None
        self.tracer = Tracer(config.run_dir, self._record) if mesh.is_rank0 else None
        self.heartbeats = Heartbeats(mesh, config.timeouts, config.run_dir, self._record)
        self.heartbeats.start()  # before the model is built, which takes time
        try:
            with self.heartbeats.busy("start"):
                self._build(config, mesh)
        except BaseException:
            self.close()
            raise

    def _build(self, config: TrainConfig, mesh: Mesh) -> None:
        """Make all that a run consists of."""
        _agree(config, mesh)
        store_seconds = config.timeouts.store
        self.data: Dataset = load_dataset(config.data, config.model.context, config.seed, store_seconds)
        order = GlobalOrder(len(self.data.train), config.seed)
        size = config.data.batch_size_per_rank
        self.loader = Loader(self.data.train, order, size, mesh.data_rank, mesh.data_size)
        with torch.device("meta"):
            model = build_model(config.model, self.data.num_classes)
        sample = self.data.train.take(torch.tensor([0])).inputs
        self._peak_rate = self._find_peak_rate(model, sample)
        torch.manual_seed(config.seed)
        layers = layers_of(config.model, self.data.num_classes)
        plan = tensor_plan(config.model)
        self.model = parallelize(model, layers, plan, config, mesh=mesh, sample=sample)
        self.loss_scale = LossScale(mesh.device) if config.precision == "float16" else None
        compute = PipelinedComputation if mesh.pipeline > 1 else Computation
        self.computation = compute(self.model, mesh, config.accumulate, config.precision, self.loss_scale)
        self.optimizer = build_optimizer(config.optim, self.model.parameters())
        self.update = Update(self.optimizer, mesh, config.optim.clip_norm, self.loss_scale)
        memory = NodeMemory.of(config.checkpoint.memory_gib)
        self.state = State(unwrap(self.model), self.optimizer, mesh, memory)
        torch.manual_seed(_rank_seed(config.seed, mesh))
        place = config.checkpoint.store or str(config.run_dir / "checkpoints")
        retention = Retention(
            config.checkpoint.keep_last, config.checkpoint.keep_every, config.checkpoint.superseded == "tag"
        )
        self.saver = Saver(open_store(place, retention, store_seconds), mesh, memory)
        self.schedule: Schedule
        self.cadence: Cadence | None = None
        if mesh.is_rank0 and not config.checkpoint.every_steps:
            lines = read_metrics(config.run_dir / METRICS)
            self.cadence = Cadence(measured_mtbf(lines, config.checkpoint.mtbf_seconds))
        spot_seconds, save_seconds = read_seconds(NOTICE), config.timeouts.save
        self.writer = Writer(
            self.heartbeats, self._record, save_seconds, self.cadence, spot_seconds, mesh.is_rank0
        )

    def _find_peak_rate(self, model: nn.Module, sample: torch.Tensor) -> float | None:
        """Samples per second of all ranks that their devices could train, if each did all that it can."""
        if self.mesh.device.type != "cuda":
            return None
        peak = peak_of(torch.cuda.get_device_name(self.mesh.device), self.config.precision)
        return peak * self.mesh.world_size / flops_of(model, sample.to("meta")) if peak else None

    @property
    def batch_size(self) -> int:
        """Samples in one step of all ranks."""
        return self.config.data.batch_size_per_rank * self.mesh.data_size

    @property
    def identity(self) -> dict[str, Any]:
        """What a checkpoint must have in common with this run to be resumed by it."""
        return {**self.config.identity, DATASET: self.data.identity}

    @property
    def saved_step(self) -> int | None:
        """The step that this run would resume from; 0 if nothing is saved yet, None before it has looked."""
        return self.writer.saved_step

    def run(self, started: float) -> bool:
        """Train to the end, or until told to leave; returns whether the end was reached.

        Args:
            started: unix time at which this process began, for the record.

        Raises:
            DivergedError, SaveError, MismatchError, RuntimeError (a rank is gone): with the last
            committed checkpoint in place.
        """
        try:
            self.prepare(started)
            self.notice.begin_steps()
            finished = self._train()
            self.mesh.shutdown_barrier()
        except DivergedError:
            self.writer.settle()
            raise
        finally:
            if self.tracer:
                self.tracer.close()
            self.saver.close()
            self.loader.close()
            self.heartbeats.stop()
        if finished:  # on notice there is no time for it
            longest = max(self.config.timeouts.save, self.config.timeouts.store)
            self.saver.wait_for_clean_up(longest, lambda: self.notice.requested)
        return finished

    def close(self) -> None:
        """Let go of threads, files and ports, which a process that goes on would keep."""
        self.heartbeats.stop()
        for part in ("tracer", "saver", "loader", "data", "log"):
            if held := getattr(self, part, None):
                held.close()

    def _train(self) -> bool:
        while self.step < self.config.steps:
            self.take_step()
            last = self.step == self.config.steps
            evaluates = last or self.step % self.config.evaluate_every == 0
            saves = not last and self._save_is_due
            if evaluates or saves:
                self.read()
            told = self._told
            if evaluates and not told:
                told = self._evaluate()
            if told and not last:
                self._leave()
                return False
            self.writer.look()
            if saves:
                self.writer.begin(self.step, "interval", self.state.capture, self._start_saving_paced)
        self._finish()
        return True

    @property
    def _save_is_due(self) -> bool:
        every_steps = self.config.checkpoint.every_steps
        return self.step % every_steps == 0 if every_steps else self._due

    def prepare(self, started: float) -> None:
        """Load the newest checkpoint, if there is one; `run` does it."""
        with self.heartbeats.busy("loading"):
            self._load(started)

    def _load(self, started: float) -> None:
        nodes = self.mesh.gather("nodes", self.mesh.node)
        checkpoint, damages, _ = self.saver.load(self.identity, self.state.restore)
        previous = None
        self.writer.saved_step = 0
        if checkpoint:
            self.step, self.samples = checkpoint.manifest.step, checkpoint.manifest.samples
            previous = Schedule(**checkpoint.manifest.schedule)
            scaling = dict(checkpoint.manifest.loss_scale)
            self.skipped = scaling.pop("skipped", 0)
            if self.loss_scale:
                self.loss_scale.resume(scaling)
            self.writer.saved_step = self.step
        self.heartbeats.saved(self.writer.saved_step)
        self.saver.loaded()
        updates = self.step - self.skipped
        self.schedule = schedule_for(self.config.optim, self.batch_size, updates, previous)
        warnings = doubts(self.config.optim, self.batch_size)
        self._record(
            "resumed" if checkpoint else "started",
            samples=self.samples,
            steps=self.config.steps,
            world_size=self.mesh.world_size,
            nodes=nodes,
            strategy=self.config.strategy,
            device=self.mesh.device.type,
            startup_seconds=round(time.time() - started, 3),
            damaged=damages,
            **({"bytes_from_store": checkpoint.held.bytes_from_store} if checkpoint else {}),
            warnings=warnings,
            **origin.recorded(),
        )
        if self.mesh.is_rank0:
            sys.stderr.write("".join(f"training: {warning}\n" for warning in warnings))
        self._look_at_fabric(nodes)

    def _look_at_fabric(self, nodes: Sequence[str]) -> None:
        """Say what carries the collectives, and how fast that is."""
        choice = self.mesh.choice
        if choice is None or self.mesh.world_size == 1:
            return
        found = measure(self.mesh.device, choice.backend, nodes)
        self._record(
            "fabric",
            backend=choice.backend,
            why=choice.why,
            gigabytes_per_second=round(found.gigabytes_per_second, 3),
            rate=found.rate,
            verdict=found.verdict,
        )
        if self.mesh.is_rank0:
            sys.stderr.write(f"training: {choice.backend} ({choice.why}); {found.verdict}\n")

    def take_step(self) -> None:
        """One optimizer step of all ranks, without what may follow it; `run` does it.

        Nothing in it waits for the device but `read`, for the step before, once this one's work is queued.

        Raises:
            DivergedError: the step before had a loss or a gradient that is no number.
        """
        begin = time.monotonic()
        if self.tracer:
            self.tracer.before(self.step + 1)
        with self.heartbeats.busy("step", self.step + 1):
            batch = self.loader.batch(self.samples).to(self.mesh.device)
            self.optimizer.zero_grad(set_to_none=True)
            sums = self.computation.backward(batch, self.heartbeats.own_part_done)
            due = bool(self.cadence and self.cadence.due())
            totals = self.update.agree(sums, [self.notice.requested, due])
            self.read()
            rate = self.schedule.rate(self.step - self.skipped)
            set_rate(self.optimizer, rate)
            self.update.apply(totals)
            late = Late(totals)
        if self.tracer:
            self.tracer.after()
        self.step += 1
        self.samples += self.batch_size
        if self.cadence:
            self.cadence.step(time.monotonic() - begin, saving=self.writer.pending is not None)
        self.notice.sleep(max(0.0, self.config.pace_seconds - (time.monotonic() - begin)))
        self._unread = _Unread(self.step, self.samples, rate, time.monotonic() - begin, late)
        if not self._read_late:
            self.read()

    def read(self) -> None:
        """Wait for the numbers of the last step, unless they were read, and take note of them.

        Raises:
            DivergedError: its loss or gradient is no number; it has changed no weight.
        """
        unread, self._unread = self._unread, None
        if unread is None:
            return
        totals = Totals(*unread.totals.read())
        overflow = not math.isfinite(totals.squared_norm)
        if not math.isfinite(totals.loss):
            raise self._diverged(f"loss of step {unread.step}", totals.loss)
        if overflow and not self.loss_scale:
            raise self._diverged(f"length of the gradient of step {unread.step}", totals.squared_norm)
        self.skipped += overflow
        self._told, self._due = self._told or totals.notices > 0, totals.due > 0
        loss, accuracy = totals.loss / totals.targets, totals.hits / totals.targets
        norm = math.sqrt(totals.squared_norm)
        self.metrics = StepMetrics(loss, accuracy, norm)
        rate = self.batch_size / unread.seconds
        self._record(
            "step",
            step=unread.step,
            loss=round(loss, 6),
            accuracy=round(accuracy, 4),
            lr=unread.rate,
            samples=unread.samples,
            samples_per_second=round(rate, 1),
            **({"mfu": round(rate / self._peak_rate, 4)} if self._peak_rate else {}),
            **memory(self.mesh.device),
            **({"skipped": "overflow"} if overflow else {"gradient_norm": float(f"{norm:.6g}")}),
        )

    def _diverged(self, what: str, value: float) -> DivergedError:
        advice = f"lower optim.lr ({self.config.optim.lr}){self._or_warm_up()}"
        return DivergedError(f"the {what} is {value}: {advice}")

    def _or_warm_up(self) -> str:
        """That advice, where it would change anything; a run that resumes keeps its schedule."""
        optim = self.config.optim
        if optim.scaling != "none" and self.schedule.start >= self.schedule.target:
            return ""
        return f", or begin anew with more optim.warmup_steps ({optim.warmup_steps})"

    def _evaluate(self) -> bool:
        """Look at the held-out data, each rank at its part, unless a notice comes; returns whether one did.

        It may take longer than a preemption notice gives, so all ranks agree after each batch.
        """
        count = min(len(self.data.held_out), self.config.evaluate_samples)
        at_once = min(EVALUATED_AT_ONCE, self.config.data.batch_size_per_rank // self.config.accumulate)
        parts = -(-count // (self.mesh.data_size * at_once))
        mine = torch.arange(self.mesh.data_rank, count, self.mesh.data_size)
        taken = mine if len(mine) else torch.tensor([0])  # others may need it to take part
        sums = torch.zeros(3, dtype=torch.float64, device=self.mesh.device)
        for part in taken.tensor_split(parts):
            with self.heartbeats.busy("evaluation", self.step):
                sums += self._look_at(part)
                notices = torch.tensor(float(self.notice.requested), device=self.mesh.device)
                if self.mesh.sum(notices).item():
                    return True
        if not len(mine):
            sums.zero_()
        with self.heartbeats.busy("evaluation", self.step):
            loss, hits, targets = self.mesh.sum(sums).tolist()
        if not math.isfinite(loss):
            raise self._diverged(f"loss on held-out data after step {self.step}", loss)
        self._record("evaluation", loss=round(loss / targets, 6), accuracy=round(hits / targets, 4))
        return False

    def _look_at(self, part: torch.Tensor) -> torch.Tensor:
        return self.computation.evaluate(self.data.held_out.take(part).to(self.mesh.device))

    def _start_saving(self, captured: memoryview, pace_seconds: float = 0) -> Future[Saved]:
        manifest = Manifest(
            step=self.step,
            samples=self.samples,
            world_size=self.mesh.world_size,
            mesh=self.mesh.shape,
            schedule=asdict(self.schedule),
            identity=self.identity,
            loss_scale={**self.loss_scale.state_dict(), "skipped": self.skipped} if self.loss_scale else {},
        )
        name = file_name(self.mesh.rank)
        return self.saver.start(name, captured, manifest, self.state.spoiled, pace_seconds)

    def _start_saving_paced(self, captured: memoryview) -> Future[Saved]:
        """As slowly as the configuration says."""
        return self._start_saving(captured, self.config.checkpoint.pace_seconds)

    def _leave(self) -> None:
        self.read()
        nodes = self.mesh.gather("notice", self.mesh.node if self.notice.requested else "")
        self._record("notice", nodes=[node for node in nodes if node])
        self.writer.now(self.step, "notice", self.state.capture, self._start_saving_paced)
        self._record("preempted", samples=self.samples)
        self.mesh.follow("left")  # mpirun ends all ranks when the first one leaves

    def _finish(self) -> None:
        self.writer.now(self.step, "final", self.state.capture, self._start_saving)
        digest = self.state.weights_sha256()
        if not self.mesh.is_rank0:
            return
        final = {
            "step": self.step,
            "samples": self.samples,
            "sha256": digest,
            "world_size": self.mesh.world_size,
        }
        _write_whole(self.config.run_dir / FINAL, json.dumps(final, indent=1) + "\n")
        self._record("finished", samples=self.samples, sha256=digest)

    def _record(self, event: str, **values: object) -> None:
        if self.log:
            self.log.write(event, **{"step": self.step, **values})

    def record_failure(self, reason: str) -> None:
        """Note why this attempt ends."""
        self._record("failed", error=reason)


def _agree(config: TrainConfig, mesh: Mesh) -> None:
    """See to it that all ranks have the same settings; what is of a rank alone may differ.

    Raises:
        ConfigError: on every rank, with what one of them has otherwise than rank 0.
    """
    own = config.model_dump(mode="json", exclude={"run_dir", "threads", "export", "notices"})
    first = json.loads(mesh.broadcast("settings", json.dumps(own)))
    problems = [
        f"{name}: rank {mesh.rank} on {mesh.node} has {own[name]!r}, rank 0 has {first[name]!r};"
        " give all ranks the same configuration"
        for name in own
        if own[name] != first[name]
    ]
    found = mesh.gather("settings", "\n".join(problems))
    if different := [text for text in found if text]:
        mesh.shutdown_barrier()
        raise ConfigError(different[0].splitlines())


def _open_log(config: TrainConfig, listeners: Sequence[Listener]) -> MetricsLog:
    if sys.stderr.isatty():
        from trainyard_train.observability.progress import bar
        from trainyard_train.observability.trackers import Guarded

        listeners = [*listeners, Guarded("the bar", bar(sys.stderr))]
    if config.export == ExportConfig():
        return MetricsLog(config.run_dir, listeners)
    from trainyard_train.observability.trackers import open_sinks

    return MetricsLog(config.run_dir, [*listeners, *open_sinks(config.export, config.run_dir)])


def _rank_seed(seed: int, mesh: Mesh) -> int:
    """One for each part of the data and of the layers: ranks that share a layer drop the same activations."""
    return (seed << 32) + mesh.stage * mesh.data_size + mesh.data_rank + 1


def _write_whole(path: Path, text: str) -> None:
    draft = path.with_suffix(".tmp")
    draft.write_text(text)
    draft.replace(path)
