"""`DeepSpeedRun`: a run whose steps and checkpoints are DeepSpeed's, with our data, learning rate schedule,
preemption notices and metrics.
"""

from __future__ import annotations

import json
import math
import os
from typing import Any, Final

import torch

from trainyard_train.checkpointing.folder_store import exists
from trainyard_train.computation import batch_metrics, loss_of
from trainyard_train.config import TrainConfig
from trainyard_train.config_base import ConfigError, extra
from trainyard_train.data.datasets import load_dataset
from trainyard_train.data.loader import GlobalOrder, Loader
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.models.build import build_model
from trainyard_train.observability.metrics import MetricsLog
from trainyard_train.optim.optimizer import build_optimizer, set_rate
from trainyard_train.optim.schedule import schedule_for
from trainyard_train.parallelism.mesh import Mesh

FOLDER: Final = "deepspeed"
"""Name of the folder of checkpoints, in the run's folder."""


class DeepSpeedRun:
    """A run, or one attempt of it. Construct it on all ranks, then `run` it."""

    def __init__(
        self, config: TrainConfig, settings: dict[str, Any], mesh: Mesh, notice: PreemptionNotice
    ) -> None:
        """Build the run; nothing is loaded.

        Args:
            config: configuration of the run.
            settings: DeepSpeed's, from `read_settings`.
            mesh: ranks of the run.
            notice: the preemption notice of this rank.

        Raises:
            ConfigError: the checkpoints in the run's folder are of another run, or of another number of
                ranks; or DeepSpeed is not installed.
        """
        self.config, self.mesh, self.notice = config, mesh, notice
        self._check_run()
        self.log = MetricsLog(config.run_dir) if mesh.is_rank0 else None
        data = load_dataset(config.data, config.model.context, config.seed, config.timeouts.store)
        order = GlobalOrder(len(data.train), config.seed)
        size = config.data.batch_size_per_rank
        self.loader = Loader(data.train, order, size, mesh.rank, mesh.world_size)
        torch.manual_seed(config.seed)
        model = build_model(config.model, data.num_classes)
        self.engine = _engine(model, config, settings, mesh)
        self.batch_size = size * mesh.world_size
        self.schedule = schedule_for(config.optim, self.batch_size, 0, None)

    @property
    def step(self) -> int:
        """Optimizer steps that were taken, over all attempts."""
        return int(self.engine.global_steps)

    def run(self) -> bool:
        """Train to the end, or until preempted; returns whether the end was reached.

        Raises:
            ArithmeticError: the loss is no longer a number.
            RuntimeError: a rank has failed.
        """
        path = self._load()
        self._record("resumed" if path else "started", world_size=self.mesh.world_size, strategy="deepspeed")
        self.notice.begin_steps()
        while self.step < self.config.steps:
            noticed = self._take_step() and self.step < self.config.steps
            if (
                noticed
                or self.step == self.config.steps
                or self.step % self.config.checkpoint.every_steps == 0
            ):
                self.engine.save_checkpoint(str(self.config.run_dir / FOLDER))
                self._record("checkpoint", reason="notice" if noticed else "interval")
            if noticed:
                self._record("preempted", samples=self.step * self.batch_size)
                self.mesh.follow("left")  # mpirun ends all ranks when the first one exits
                return False
        self._record("finished", samples=self.step * self.batch_size)
        self.mesh.shutdown_barrier()
        return True

    def _check_run(self) -> None:
        """Compare the run with the one whose checkpoints the folder has; note this one if it has none.

        Raises:
            ConfigError: the checkpoints are of another run, or of another number of ranks.
        """
        folder = self.config.run_dir / FOLDER
        note = folder / "run.json"
        own = {"run": self.config.identity, "ranks": self.mesh.world_size}
        if not exists(folder / "latest"):
            if self.mesh.is_rank0:
                folder.mkdir(parents=True, exist_ok=True)
                note.write_text(json.dumps(own))
            return
        saved = json.loads(note.read_text())
        if problems := [
            f"{note}: {name}: got {saved[name]}, this run has {own[name]}; start a run in another run_dir"
            for name in own
            if saved[name] != own[name]
        ]:
            raise ConfigError(problems)

    def _load(self) -> str | None:
        """Load the newest checkpoint, if there is one; returns its path."""
        folder = self.config.run_dir / FOLDER
        return str(self.engine.load_checkpoint(str(folder))[0]) if exists(folder / "latest") else None

    def _take_step(self) -> bool:
        """Take one optimizer step on all ranks; returns whether any rank has a preemption notice."""
        batch = self.loader.batch(self.step * self.batch_size).to(self.mesh.device)
        rate = self.schedule.rate(self.step)
        set_rate(self.engine.optimizer, rate)
        # What is dropped depends on the step, so that it is the same after an interruption.
        torch.manual_seed((self.config.seed << 32) + self.step * self.mesh.world_size + self.mesh.rank)
        metrics = torch.zeros(4, dtype=torch.float64, device=self.mesh.device)
        for part in batch.split(self.config.accumulate):
            outputs = self.engine(part.inputs).float()
            loss = loss_of(outputs, part.targets)
            metrics[:3] += batch_metrics(loss, outputs, part.targets)
            self.engine.backward(loss)
            self.engine.step()  # changes the weights after the last micro-batch only
        metrics[3] = self.notice.requested
        loss_sum, hits, count, noticed = self.mesh.sum(metrics).tolist()
        if not math.isfinite(loss_sum):
            raise ArithmeticError(
                f"the loss of step {self.step} is {loss_sum}: lower optim.lr, or warm up longer"
            )
        mean, accuracy = round(loss_sum / count, 6), round(hits / count, 4)
        self._record("step", loss=mean, accuracy=accuracy, lr=rate, samples=self.step * self.batch_size)
        self.notice.sleep(self.config.pace_seconds)
        return bool(noticed)

    def _record(self, event: str, **values: object) -> None:
        if self.log:
            self.log.write(event, **{"step": self.step, **values})


def _engine(model: torch.nn.Module, config: TrainConfig, settings: dict[str, Any], mesh: Mesh) -> Any:  # noqa: ANN401
    """Create DeepSpeed's engine for a model; it uses the ranks' existing process group.

    Raises:
        ConfigError: DeepSpeed is not installed.
    """
    os.environ.setdefault("DS_ACCELERATOR", mesh.device.type)  # else DeepSpeed probes for other devices
    with extra("deepspeed"):
        import deepspeed
    if mesh.device.type == "cpu":
        # DeepSpeed would compile its collectives with a compiler that is not in the image, and which
        # training does not use.
        deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
    optimizer = build_optimizer(config.optim, model.parameters())
    return deepspeed.initialize(model=model, optimizer=optimizer, config=settings)[0]
