"""Callback of Hugging Face and TRL `Trainer`s: saves, resumes, and exits on a preemption notice
(docs/library.md, Hugging Face Trainer and TRL).

The Trainer resumes from a temporary folder that has only the checkpoint's `trainer_state.json`, and skips the
batches of finished steps. `Run` loads weights, optimizer and scheduler in place of the Trainer. A step counts
once its metrics are logged, which is when the next step begins or the training ends.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import transformers
from transformers import TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState

from trainyard_train.checkpointing.objects import TrackedOnRank0
from trainyard_train.config_base import ConfigError, require
from trainyard_train.integrations.accelerate import require_all_ranks_of
from trainyard_train.run import Run

_LOSS_ACCUMULATORS = ("_tr_loss", "_total_loss_scalar", "_globalstep_last_logged", "_initial_global_step")
"""Attributes of the Trainer: the sums of the losses since the last log line and since the first step, and the
steps at which both begin. The Trainer resets them on resume. `_initial_global_step` is new in 5.20;
before 5.5 the first one is a variable of the Trainer's loop."""


class TrainyardCallback(TrainerCallback):  # type: ignore[misc]
    """Saves what a Trainer trains, and lets `train()` resume from it; exits with 75 when preempted."""

    def __init__(self, trainer: Any, run_dir: str | Path, **settings: Any) -> None:  # noqa: ANN401
        """Make it before `train()` is called, on all ranks.

        Args:
            trainer: a `transformers.Trainer`.
            run_dir: folder that all ranks share.
            settings: see `Run`.

        Raises:
            ConfigError: a setting is wrong, or the Trainer is too old, or has such a callback already.
        """
        require("transformers", transformers.__version__, (4, 46))
        if any(isinstance(each, TrainyardCallback) for each in trainer.callback_handler.callbacks):
            raise ConfigError(["TrainyardCallback: this Trainer has one already; add one only"])
        self.run = Run(run_dir, **settings)
        require_all_ranks_of(trainer.accelerator, self.run)
        self._trainer = trainer
        self._loss: float | None = None
        self._metrics: dict[str, float] = {}
        """Metrics of the last evaluation, of a step that is not counted yet."""
        self._loss_accumulators: dict[str, Any] = {}
        self._sum_to_restore: Any = None
        """The sum of the losses since the last log line, for a Trainer that has it in its loop only."""
        self._is_before_first_step = False
        """Whether the state was loaded, and no step has begun since."""
        self._folder = tempfile.TemporaryDirectory()
        trainer._inner_training_loop = self._wrap_training_loop(trainer._inner_training_loop)
        for part in ("from_checkpoint", "optimizer_and_scheduler", "scaler", "rng_state"):
            name = f"_load_{part}"
            if load := getattr(trainer, name, None):
                setattr(trainer, name, self._skip_resume_folder(load))
        trainer._maybe_log_save_evaluate = self._wrap_log(trainer._maybe_log_save_evaluate)

    def on_train_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Track the Trainer's objects, and load them."""
        trainer = self._trainer
        parts = {"model": trainer.model_wrapped, "optimizer": trainer.optimizer}
        if trainer.lr_scheduler is not None:
            parts["scheduler"] = trainer.lr_scheduler
        if (scaler := getattr(trainer.accelerator, "scaler", None)) is not None:
            parts["scaler"] = scaler
        of = _TrainerState(trainer)
        self.run.track(trainer_state=TrackedOnRank0(of.state_dict, of.load_state_dict))
        self.run.track(**parts, sums=self._loss_accumulators)
        self.run.load()
        self._is_before_first_step = True
        if not hasattr(trainer, "_tr_loss"):
            self._sum_to_restore = self._loss_accumulators.get("_tr_loss")
        for name, value in self._loss_accumulators.items():
            setattr(trainer, name, value)

    def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Count the previous step, which is finished and logged."""
        if self._is_before_first_step:
            self._is_before_first_step = False
            self.run.restore_generators()  # again: since the load, the loader has drawn from them
        self._finish(state)

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:  # noqa: ANN401
        """Remember the loss."""
        self._loss = (logs or {}).get("loss", self._loss)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **_: Any) -> None:  # noqa: ANN401
        """Remember the metrics until their step is counted."""
        self._metrics = {k: float(v) for k, v in (metrics or {}).items() if isinstance(v, int | float)}

    def on_train_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:  # noqa: ANN401
        """Count the last step."""
        self._finish(state)

    def _finish(self, state: Any) -> None:  # noqa: ANN401
        if state.global_step > self.run.steps:
            own = vars(self._trainer)
            self._loss_accumulators.update({name: own[name] for name in _LOSS_ACCUMULATORS if name in own})
            loss, self._loss = self._loss, None
            self.run.step(loss)
            if self._metrics:
                self.run.measured(**self._metrics)
                self._metrics = {}

    def _wrap_training_loop(self, train: Any) -> Any:  # noqa: ANN401
        """Return the Trainer's loop inside `run.entered()`, resuming from the run's checkpoint."""

        @functools.wraps(train)
        def loop(*arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
            try:
                with self.run.entered():
                    state = self.run.find().get("trainer_state")
                    if state is not None:
                        Path(self._folder.name, TRAINER_STATE_NAME).write_text(json.dumps(state))
                        settings["resume_from_checkpoint"] = self._folder.name
                    return train(*arguments, **settings)
            finally:
                self._folder.cleanup()
            # Reached only if entered() suppressed a preemption or a config error.
            sys.exit(self.run.exit_code)

        return loop

    def _wrap_log(self, log: Any) -> Any:  # noqa: ANN401
        """Return what the Trainer does after a step, with the sum of the losses as an attribute."""

        @functools.wraps(log)
        def logged(tr_loss: Any, *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
            if self._sum_to_restore is not None:
                tr_loss += self._sum_to_restore  # in place: the loop has the same tensor
                self._sum_to_restore = None
            self._trainer._tr_loss = tr_loss
            return log(tr_loss, *arguments, **settings)

        return logged

    def _skip_resume_folder(self, load: Any) -> Any:  # noqa: ANN401
        """Return a loader that skips the resume folder: `Run` has loaded what would be read from it."""

        @functools.wraps(load)
        def loader(folder: Any, *arguments: Any, **settings: Any) -> Any:  # noqa: ANN401
            return None if folder == self._folder.name else load(folder, *arguments, **settings)

        return loader


@dataclasses.dataclass
class _TrainerState:
    """The `trainer_state.json` of a Trainer, as state of the run, with its callbacks' attributes of now."""

    trainer: Any

    def state_dict(self) -> dict[str, Any]:
        state = dataclasses.asdict(self.trainer.state)
        states = [*self._callbacks(), self.trainer.control]
        state["stateful_callbacks"] = TrainerState(stateful_callbacks=states).stateful_callbacks
        plain: dict[str, Any] = json.loads(json.dumps(state))
        return plain

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the callbacks' attributes; the Trainer reads the rest through `resume_from_checkpoint`."""
        saved = {
            name: states if isinstance(states, list) else [states]
            for name, states in state["stateful_callbacks"].items()
        }
        for callback in self._callbacks():
            if states := saved.get(type(callback).__name__):
                vars(callback).update(states.pop(0)["attributes"])

    def _callbacks(self) -> list[Any]:
        """Those that the Trainer's own checkpoints save, such as EarlyStoppingCallback."""
        return [each for each in self.trainer.callback_handler.callbacks if isinstance(each, ExportableState)]
