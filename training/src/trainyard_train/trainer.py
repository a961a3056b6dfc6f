"""`Trainer`: training and evaluation loop of `trainyard_train.train`. It resumes bit-exactly after any
interruption, and saves and stops on a preemption notice. It raises `DivergedError` if the loss is not finite;
without loss scaling, also if the gradient is not finite.
"""

from __future__ import annotations

import json
import math
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import nn

from trainyard_train.attempt import Attempt
from trainyard_train.checkpointing.checkpoint import Manifest
from trainyard_train.checkpointing.finding import DATASET, UnusableError
from trainyard_train.checkpointing.snapshot import Snapshot
from trainyard_train.checkpointing.state import State
from trainyard_train.computation import Computation
from trainyard_train.config import TrainConfig
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.data.samples import Dataset
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.models.build import build_model, layers_of
from trainyard_train.observability.device import Tracer, flops_of, memory, peak_of
from trainyard_train.observability.metrics import Listener, MetricsLog
from trainyard_train.observability.rank_log import log_line
from trainyard_train.observability.trackers import Guarded, bar, open_sinks
from trainyard_train.optim.optimizer import build_optimizer, set_rate
from trainyard_train.optim.schedule import Schedule, scaling_warnings, schedule_for
from trainyard_train.parallelism import fabric
from trainyard_train.parallelism.mesh import Mesh
from trainyard_train.parallelism.parallelize import parallelize, unwrap
from trainyard_train.tensors import Late
from trainyard_train.update import LossScale, Totals, Update

FINAL = "final.json"
EVALUATED_AT_ONCE = 512
"""Maximum number of samples per rank in one batch of the evaluation; at most a micro-batch, which fits into
memory."""


class DivergedError(ArithmeticError):
    """The loss is no longer a number."""


@dataclass(frozen=True)
class _Unread:
    """A step whose numbers have not been read from the device yet, with the host's data of it."""

    step: int
    samples: int
    rate: float
    seconds: float
    totals: Late


class Trainer(Attempt):
    """One run, or one attempt of it. Construct it, then `run` it."""

    def __init__(
        self,
        config: TrainConfig,
        mesh: Mesh,
        notice: PreemptionNotice,
        listeners: Sequence[Listener] = (),
        *,
        reads_late: bool | None = None,
    ) -> None:
        """Make all that a run consists of.

        Args:
            config: configuration of the run.
            mesh: ranks of the run.
            notice: the preemption notice of this rank.
            listeners: called at rank 0 with each line of the metrics.
            reads_late: whether the numbers of a step are read while the next one is computed; if not given,
                where the device works on while the host does something else.
        """
        config.parallel.check(mesh.world_size)
        log = _open_log(config, listeners) if mesh.is_rank0 else None
        super().__init__(config.run_dir, mesh, notice, config.checkpoint, config.timeouts, log)
        self.config = config
        self.samples = 0
        self.skipped = 0
        """Steps that were skipped because float16 overflowed; the schedule does not count them."""
        self.loss: float | None = None
        """Mean over the targets, in nats, of the last step that was read."""
        self._reads_late = mesh.device.type != "cpu" if reads_late is None else reads_late
        self._unread: _Unread | None = None
        self.tracer = Tracer(config.run_dir, self._record) if mesh.is_rank0 else None
        self.heartbeats.start()  # before the model is built, which is slow
        try:
            with self.heartbeats.busy("start"):
                self._open(config, mesh)
            with self.heartbeats.busy("loading"):
                self._found = self.finder.newest(self.identity)
            with self.heartbeats.busy("start"):
                self._build(config, mesh)
        except BaseException as error:
            if isinstance(error, OSError | UnusableError):  # checkpoints that cannot be read or used
                self.record_failure(f"{type(error).__name__}: {error}")
            self.close()
            raise

    def _open(self, config: TrainConfig, mesh: Mesh) -> None:
        """See that all ranks have the same settings, and open the data."""
        of_a_rank_alone = {"run_dir", "threads", "export", "notices"}
        self._agree("settings", config.model_dump(mode="json", exclude=of_a_rank_alone))
        store_seconds = config.timeouts.store
        self.data: Dataset = load_dataset(config.data, config.model.context, config.seed, store_seconds)
        self.identity = {**config.identity, DATASET: self.data.identity}
        order = GlobalOrder(len(self.data.train), config.seed)
        size = config.data.batch_size_per_rank
        self.loader = Loader(self.data.train, order, size, mesh.rank, mesh.world_size)

    def _build(self, config: TrainConfig, mesh: Mesh) -> None:
        """Build model, optimizer and state; weights that a checkpoint replaces are not initialized."""
        with torch.device("meta"):
            model = build_model(config.model, self.data.num_classes)
        sample = self.data.train.take(torch.tensor([0])).inputs
        self._peak_rate = self._find_peak_rate(model, sample)
        torch.manual_seed(config.seed)
        layers = layers_of(config.model, self.data.num_classes)
        self.model = parallelize(model, layers, config, mesh=mesh, blank=self._found[0] is not None)
        self.loss_scale = LossScale(mesh.device) if config.precision == "float16" else None
        self.computation = Computation(self.model, mesh, config.accumulate, config.precision, self.loss_scale)
        self.optimizer = build_optimizer(config.optim, unwrap(self.model).parameters())
        self.update = Update(self.optimizer, mesh, config.optim.clip_norm, self.loss_scale)
        self.state: State = State(unwrap(self.model), self.optimizer, mesh, self.memory)
        torch.manual_seed((config.seed << 32) + mesh.rank + 1)  # ranks drop different activations
        self.schedule: Schedule

    def _find_peak_rate(self, model: nn.Module, sample: torch.Tensor) -> float | None:
        """Samples per second of all ranks that their devices could train, if each did all that it can."""
        if self.mesh.device.type != "cuda":
            return None
        peak = peak_of(torch.cuda.get_device_name(self.mesh.device), self.config.precision)
        return peak * self.mesh.world_size / flops_of(model, sample.to("meta")) if peak else None

    @property
    def batch_size(self) -> int:
        """Samples in one step of all ranks."""
        return self.config.data.batch_size_per_rank * self.mesh.world_size

    def run(self, started: float) -> bool:
        """Train to the end, or until preempted; returns whether the end was reached.

        Args:
            started: unix time at which this process began, for the record.

        Raises:
            DivergedError, SaveError, MismatchError, RuntimeError (a rank has failed): with the last
            committed checkpoint unchanged.
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
        if finished:  # on a preemption notice there is no time for it
            self._wait_for_clean_up()
        return finished

    def close(self) -> None:
        """Close threads, files and ports, for a process that continues."""
        super().close()
        for part in ("tracer", "loader"):
            if held := getattr(self, part, None):
                held.close()

    def _train(self) -> bool:
        while self.steps < self.config.steps:
            self.take_step()
            last = self.steps == self.config.steps
            evaluates = last or self.steps % self.config.evaluate_every == 0
            saves = not last and self._save_is_due
            if evaluates or saves:
                self.read()
            noticed = self._noticed
            if evaluates and not noticed:
                noticed = self._evaluate()
            if noticed and not last:
                self._save_on_notice()
                return False
            self.writer.look()
            if saves:
                self._begin_save()
        self._finish()
        return True

    def prepare(self, started: float) -> None:
        """Load the newest checkpoint, if there is one; `run` does it."""
        with self.heartbeats.busy("loading"):
            nodes = self.mesh.gather("nodes", self.mesh.node)
            checkpoint, damages, _ = self.finder.load(self.identity, self.state.restore, self._found)
            self._go_on(checkpoint.manifest if checkpoint else None)
            warnings = scaling_warnings(self.config.optim, self.batch_size)
            self._begin(
                checkpoint,
                damages,
                samples=self.samples,
                steps=self.config.steps,
                nodes=nodes,
                strategy=self.config.strategy,
                startup_seconds=round(time.time() - started, 3),
                warnings=warnings,
            )
            for warning in warnings if self.mesh.is_rank0 else ():
                log_line(warning)
            self._look_at_fabric(nodes)

    def _go_on(self, manifest: Manifest | None) -> None:
        """Continue from the loaded checkpoint; from the beginning if there is none."""
        previous = None
        if manifest:
            self.steps, self.samples = manifest.step, manifest.samples
            previous = Schedule(**manifest.schedule)
            scaling = dict(manifest.loss_scale)
            self.skipped = scaling.pop("skipped", 0)
            if self.loss_scale:
                self.loss_scale.resume(scaling)
        updates = self.steps - self.skipped
        self.schedule = schedule_for(self.config.optim, self.batch_size, updates, previous)

    def _look_at_fabric(self, nodes: Sequence[str]) -> None:
        """Report what carries the collectives, and how fast that is.

        Raises:
            NoFabricError: ranks leave the fabric of their pool, or use a part of it.
        """
        choice = self.mesh.choice
        if choice is None or self.mesh.world_size == 1:
            return
        found = fabric.measure(self.mesh.device, choice.backend, nodes)
        own = fabric.own_report(found, self.mesh.node, is_rank0=self.mesh.is_rank0)
        whole = fabric.merged(self.mesh.gather("fabric", own))
        self._record(
            "fabric",
            backend=choice.backend,
            why=choice.why,
            gigabytes_per_second=round(found.gigabytes_per_second, 3),
            rate=found.rate,
            verdict=found.verdict,
            **whole,
        )
        if self.mesh.is_rank0:
            for line in (
                f"{choice.backend} ({choice.why}); {found.verdict}",
                *whole["network"][:1],
                *whole["warns"],
            ):
                log_line(line)
        if whole["ends"]:
            how = "set NCCL_NET=Socket to use TCP on purpose, or TRAINYARD_FABRIC=none if this is wrong"
            raise fabric.NoFabricError("\n".join([*whole["ends"], f"the job leaves its fabric; {how}"]))

    def take_step(self) -> None:
        """Take one optimizer step on all ranks; `run` does this and what follows.

        Only `read` waits for the device: it reads the previous step's numbers once this step is queued.

        Raises:
            DivergedError: the loss or gradient of a step that was read is not finite.
        """
        begin = time.monotonic()
        if self.tracer:
            self.tracer.before(self.steps + 1)
        with self.heartbeats.busy("step", self.steps + 1):
            batch = self.loader.batch(self.samples).to(self.mesh.device)
            self.optimizer.zero_grad(set_to_none=True)
            metrics = self.computation.backward(batch, self._flags, self.heartbeats.own_part_done)
            totals = self.update.agree(metrics)
            self.read()
            rate = self.schedule.rate(self.steps - self.skipped)
            set_rate(self.optimizer, rate)
            self.update.apply(totals)
            late = Late(totals)
        if self.tracer:
            self.tracer.after()
        self.steps += 1
        self.samples += self.batch_size
        self._measure(time.monotonic() - begin)
        self.notice.sleep(max(0.0, self.config.pace_seconds - (time.monotonic() - begin)))
        self._unread = _Unread(self.steps, self.samples, rate, time.monotonic() - begin, late)
        if not self._reads_late:
            self.read()

    def read(self) -> None:
        """Wait for the numbers of the last step, unless they were read, and take note of them.

        Raises:
            DivergedError: the loss or gradient is not finite; no weight was changed.
        """
        unread, self._unread = self._unread, None
        if unread is None:
            return
        totals = Totals(*unread.totals.read())
        overflow = not math.isfinite(totals.squared_norm)
        if not math.isfinite(totals.loss):
            raise self._diverged(f"loss of step {unread.step}", totals.loss)
        if overflow and not self.loss_scale:
            raise self._diverged(f"norm of the gradient of step {unread.step}", totals.squared_norm)
        self.skipped += overflow
        self._noticed, self._due = self._noticed or totals.notices > 0, totals.due > 0
        self.loss, norm = totals.loss / totals.targets, math.sqrt(totals.squared_norm)
        rate = self.batch_size / unread.seconds
        self._record(
            "step",
            step=unread.step,
            loss=round(self.loss, 6),
            accuracy=round(totals.hits / totals.targets, 4),
            lr=unread.rate,
            samples=unread.samples,
            samples_per_second=round(rate, 1),
            **({"mfu": round(rate / self._peak_rate, 4)} if self._peak_rate else {}),
            **memory(self.mesh.device),
            **({"skipped": "overflow"} if overflow else {"gradient_norm": float(f"{norm:.6g}")}),
        )

    def _diverged(self, what: str, value: float) -> DivergedError:
        optim, or_warm_up = self.config.optim, ""
        if optim.scaling == "none" or self.schedule.start < self.schedule.target:  # else it changes nothing
            or_warm_up = f", or start a new run with more optim.warmup_steps ({optim.warmup_steps})"
        return DivergedError(f"the {what} is {value}: lower optim.lr ({optim.lr}){or_warm_up}")

    def _evaluate(self) -> bool:
        """Evaluate the held-out data, each rank its part; returns whether a preemption notice ended it.

        It may take longer than a preemption notice gives, so all ranks agree after each batch.
        """
        count = min(len(self.data.held_out), self.config.evaluate_samples)
        at_once = min(EVALUATED_AT_ONCE, self.config.data.batch_size_per_rank // self.config.accumulate)
        parts = -(-count // (self.mesh.world_size * at_once))
        mine = torch.arange(self.mesh.rank, count, self.mesh.world_size)
        taken = mine if len(mine) else torch.tensor([0])  # collectives of the model need every rank
        metrics = torch.zeros(3, dtype=torch.float64, device=self.mesh.device)
        for part in taken.tensor_split(parts):
            with self.heartbeats.busy("evaluation", self.steps):
                metrics += self._look_at(part)
                notices = torch.tensor(float(self.notice.requested), device=self.mesh.device)
                if self.mesh.sum(notices).item():
                    return True
        if not len(mine):
            metrics.zero_()
        with self.heartbeats.busy("evaluation", self.steps):
            loss, hits, targets = self.mesh.sum(metrics).tolist()
        if not math.isfinite(loss):
            raise self._diverged(f"loss on held-out data after step {self.steps}", loss)
        found = {"loss": round(loss / targets, 6), "accuracy": round(hits / targets, 4)}
        self._record("evaluation", **found)
        self._keep_if_best(found)
        return False

    def _look_at(self, part: torch.Tensor) -> torch.Tensor:
        return self.computation.evaluate(self.data.held_out.take(part).to(self.mesh.device))

    def _catch_up(self) -> None:
        self.read()

    def _capture(self, manifest: Manifest) -> Snapshot:
        return self.state.capture(manifest)

    def _position(self) -> dict[str, Any]:
        scale = {**self.loss_scale.state_dict(), "skipped": self.skipped} if self.loss_scale else {}
        return {"samples": self.samples, "schedule": asdict(self.schedule), "loss_scale": scale}

    def _save_on_notice(self) -> None:
        super()._save_on_notice()
        self._record("preempted", samples=self.samples)
        self.mesh.follow("left")  # mpirun ends all ranks when the first one exits

    def _finish(self) -> None:
        self._save("final")
        digest = self.state.weights_sha256()
        if not self.mesh.is_rank0:
            return
        final = {
            "step": self.steps,
            "samples": self.samples,
            "sha256": digest,
            "world_size": self.mesh.world_size,
        }
        staged = (self.config.run_dir / FINAL).with_suffix(".tmp")
        staged.write_text(json.dumps(final, indent=1) + "\n")
        staged.replace(self.config.run_dir / FINAL)
        self._record("finished", samples=self.samples, sha256=digest)

    def record_failure(self, reason: str) -> None:
        """Note why this attempt ends."""
        self._record("failed", error=reason)


def _open_log(config: TrainConfig, listeners: Sequence[Listener]) -> MetricsLog:
    if sys.stderr.isatty():
        listeners = [*listeners, Guarded("the bar", bar(sys.stderr))]
    return MetricsLog(config.run_dir, [*listeners, *open_sinks(config.export, config.run_dir)])
