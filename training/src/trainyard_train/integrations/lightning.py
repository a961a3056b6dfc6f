"""Lightning callback: saves checkpoints, resumes within an epoch, and exits on a preemption notice
(docs/library.md, Lightning).

A checkpoint has the progress of Lightning's loops beside the weights, and `Run` yields the remaining batches.
A step ends with its batch, or with the validation or end of the epoch that follows the batch: so neither is
skipped or repeated after a resume.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import lightning
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.trainer.connectors.logger_connector.result import _ResultCollection
from lightning.pytorch.utilities.model_helpers import is_overridden

from trainyard_train.config_base import ConfigError, require
from trainyard_train.integrations import numbered, require_all_ranks
from trainyard_train.run import Run


class TrainyardCallback(Checkpoint):  # type: ignore[misc]
    """Saves what a Trainer fits, and lets `fit()` continue from there; exits with 75 when preempted.

    Lightning calls callbacks of this base class after all others.
    """

    run: Run

    def __init__(self, run_dir: str | Path, **settings: Any) -> None:  # noqa: ANN401
        """Pass it to the Trainer instead of a ModelCheckpoint, on all ranks.

        Args:
            run_dir: folder that all ranks share.
            settings: see `Run`.

        Raises:
            ConfigError: Lightning is too old.
        """
        require("lightning", lightning.__version__, (2, 5))
        self._run_dir, self._settings = run_dir, settings
        self._open = False
        self._steps = 0
        """Finished optimizer steps."""
        self._release: Callable[[], None] = lambda: None
        """Gives the module its own hook back."""
        self._metrics: dict[str, float] = {}
        """Metrics of the last validation, of a step that is not finished yet."""
        self._pending: Any = None
        """Outputs of the step that is not finished yet."""

    def setup(self, trainer: Any, pl_module: Any, stage: str) -> None:  # noqa: ANN401
        """The ranks are connected: join them.

        Raises:
            ConfigError: a setting is wrong, or there is such a callback already.
        """
        if stage != "fit":
            return
        self.run, self._open = Run(self._run_dir, **self._settings), True
        fix = "Trainer(devices=…) is the number of ranks on each node, and num_nodes that of nodes"
        require_all_ranks("Lightning", trainer.world_size, self.run, fix)
        if sum(isinstance(each, TrainyardCallback) for each in trainer.callbacks) > 1:
            raise ConfigError(["TrainyardCallback: this Trainer has one already; give it one only"])
        if trainer.reload_dataloaders_every_n_epochs:
            raise ConfigError(["reload_dataloaders_every_n_epochs: allowed with TrainyardCallback: 0"])
        # The run handles preemption notices: Lightning would stop its loop before all ranks have agreed.
        trainer._signal_connector._sigterm_notifier_fn = lambda *_: None

    def on_fit_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Build the loader, which is all that is missing, and load the checkpoint."""
        fetcher = self._take_loader(trainer)
        self.run.own = trainer.fit_loop.epoch_loop._results = self._sums = _Sums()
        self.run.track(model=trainer.strategy.model, progress=_Progress(trainer, self))
        self.run.track(**numbered("optimizer", trainer.optimizers))
        self.run.track(**numbered("scheduler", [each.scheduler for each in trainer.lr_scheduler_configs]))
        self.run.__enter__()
        if self.run.steps:
            trainer._checkpoint_connector._loaded_checkpoint = {}  # ckpt_path is for the first start
        self._steps = trainer.global_step
        self.run.in_epoch(trainer.fit_loop.epoch_progress.current.processed)
        self._release = _call_after(pl_module, "on_train_batch_end", partial(self._end_batch, trainer))
        iter(fetcher)

    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Let the loader begin a separate pass."""
        self.run.in_epoch(trainer.fit_loop.epoch_progress.current.processed)

    def _end_batch(self, trainer: Any, outputs: Any, *_: Any) -> None:  # noqa: ANN401
        """Finish a step, if the optimizer took one, and no validation or end of the epoch follows.

        The module's hook comes before, since it may change what is saved, as an average of weights;
        Lightning calls it after all callbacks.
        """
        if trainer.global_step == self._steps:
            return
        self._steps, self._pending = trainer.global_step, outputs or {}
        loop = trainer.fit_loop.epoch_loop
        if not loop._num_ready_batches_reached() and not loop._should_check_val_fx(
            trainer.fit_loop._data_fetcher
        ):
            self._finish_step(trainer)

    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Finish the step that a validation in the middle of an epoch belongs to."""
        if not trainer.sanity_checking:
            found = trainer.callback_metrics.items()
            self._metrics = {name: float(value) for name, value in found if value.numel() == 1}
        if not trainer.sanity_checking and not trainer.fit_loop.epoch_loop._num_ready_batches_reached():
            self._finish_step(trainer)

    def on_train_epoch_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """The last step of the epoch is finished."""
        self._sums.open = False
        self._finish_step(trainer)
        self._sums.open = True

    def on_train_end(self, trainer: Any, pl_module: Any) -> None:  # noqa: ANN401
        """Save the last step."""
        self._close_run(None)

    on_fit_end = on_train_end  # if nothing remained to train

    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:  # noqa: ANN401
        """Exit with the code of the reason."""
        if self._close_run(exception):
            raise SystemExit(self.run.exit_code) from None

    def _take_loader(self, trainer: Any) -> Any:  # noqa: ANN401
        """Replace the loader's batches by the run's; returns what fetches them."""
        loop = trainer.fit_loop
        loop.setup_data()
        combined, fetcher = loop._combined_loader, loop._data_fetcher
        if combined is None or len(combined.flattened) != 1:
            number = len(combined.flattened) if combined else 0
            raise ConfigError([f"train_dataloaders: got {number} loaders; allowed with TrainyardCallback: 1"])
        fetcher.teardown()  # the fetcher has started to read the old loader
        combined.flattened = [self.run.batches(combined.flattened[0], per_step=None)]
        fetcher.setup(combined)
        return fetcher

    def _finish_step(self, trainer: Any) -> None:  # noqa: ANN401
        outputs, self._pending = self._pending, None
        if outputs is None:
            return
        (batches,) = trainer.fit_loop._combined_loader.flattened
        batches.ahead = len(getattr(trainer.fit_loop._data_fetcher, "batches", ()))
        self.run.in_epoch(trainer.fit_loop.epoch_progress.current.processed)
        self.run.step(outputs.get("loss"))
        if self._metrics:
            self.run.measured(**self._metrics)
            self._metrics = {}

    def _close_run(self, error: BaseException | None) -> bool:
        """Close the run once; returns whether an error is one that the run itself answers."""
        if not self._open:
            return False
        self._open = False
        self._release()
        kind = None if error is None else type(error)
        return self.run.__exit__(kind, error, None if error is None else error.__traceback__)


class _Sums(_ResultCollection):  # type: ignore[misc]
    """Lightning's results of the epoch: what `self.log(…, on_epoch=True)` has summed up is saved.

    Each goes on when it is logged again, since Lightning creates it then.
    """

    def __init__(self) -> None:
        super().__init__(training=True)
        self.open = True
        """Whether the epoch still goes on."""
        self._saved: dict[str, dict[str, Any]] = {}

    def state_dict(self) -> dict[str, Any]:
        """Each sum's tensors, as numbers with their type."""
        going_on = {
            key: {name: [(sum_ := getattr(each, name)).item(), str(sum_.dtype)] for name in each._defaults}
            for key, each in self.items()
            if each.is_tensor and each.meta.on_epoch and not each.has_reset
        }
        return {**self._saved, **going_on} if self.open else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self._saved = state

    def __setitem__(self, key: str, metric: Any) -> None:  # noqa: ANN401
        for name, (number, kind) in self._saved.pop(key, {}).items():
            setattr(metric, name, torch.tensor(number, dtype=getattr(torch, kind.removeprefix("torch."))))
        super().__setitem__(key, metric)

    def reset(self, metrics: bool | None = None, fx: str | None = None) -> None:
        """Lightning resets all at the end of an epoch, and those of a hook when it first logs in one."""
        if fx is None:
            self._saved = {}
        super().reset(metrics, fx)


def _call_after(owner: Any, name: str, then: Callable[..., None]) -> Callable[[], None]:  # noqa: ANN401
    """Let a method be followed by a call with the same arguments; returns what undoes that."""
    method, before = getattr(owner, name), vars(owner).get(name)

    def both(*arguments: Any) -> None:  # noqa: ANN401
        method(*arguments)
        then(*arguments)

    setattr(owner, name, both)
    return lambda: setattr(owner, name, before) if before else delattr(owner, name)


@dataclass
class _Progress:
    """State of Lightning's loops and its other parts."""

    trainer: Any
    owner: TrainyardCallback

    def state_dict(self) -> dict[str, Any]:
        loops = self.trainer.fit_loop.state_dict()
        loops["state_dict"].pop("combined_loader", None)  # the run saves these itself
        parts = {name: each.state_dict() for name, each in self._parts().items()}
        return {"loops": loops, "module": self._of_module(), **parts}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.trainer.fit_loop.load_state_dict(state.pop("loops"))
        if added := state.pop("module", None):
            self.trainer.lightning_module.on_load_checkpoint({**self._offered(), **added})
        for name, each in self._parts().items():
            if name in state:
                each.load_state_dict(state[name])

    def _of_module(self) -> dict[str, Any]:
        """Additions of the module to a checkpoint in `on_save_checkpoint`."""
        if not is_overridden("on_save_checkpoint", self.trainer.lightning_module):
            return {}
        offered = self._offered()
        checkpoint = {**offered}
        self.trainer.lightning_module.on_save_checkpoint(checkpoint)
        return {name: value for name, value in checkpoint.items() if name not in offered}

    def _offered(self) -> dict[str, Any]:
        """What the module finds in a checkpoint already."""
        trainer = self.trainer
        weights = trainer.lightning_module.state_dict()
        return {"epoch": trainer.current_epoch, "global_step": trainer.global_step, "state_dict": weights}

    def _parts(self) -> dict[str, Any]:
        parts = {each.state_key: each for each in self.trainer.callbacks if each is not self.owner}
        parts["precision"] = self.trainer.precision_plugin
        if self.trainer.datamodule is not None:
            parts["datamodule"] = self.trainer.datamodule
        return parts
