"""Hugging Face Accelerate: creates a `Run` that tracks what an `Accelerator` has prepared (docs/library.md,
Accelerate).

With `accelerator.accumulate(model)`, call `run.step` only `if accelerator.sync_gradients`, and wrap the
loader by `run.batches(loader, per_step=None)`, since the last step of an epoch may take fewer batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import accelerate

from trainyard_train.config_base import ConfigError, require
from trainyard_train.integrations import numbered, require_all_ranks
from trainyard_train.run import Run


def run_of(accelerator: Any, run_dir: str | Path, **settings: Any) -> Run:  # noqa: ANN401
    """A run that tracks models, optimizers, schedulers, the scaler, and what was registered for checkpoints.

    Args:
        accelerator: an `accelerate.Accelerator`, after `prepare()`.
        run_dir: folder that all ranks share.
        settings: see `Run`.

    Raises:
        ConfigError: nothing was prepared, a setting or version is wrong, or something cannot be saved.
    """
    require("accelerate", accelerate.__version__, (1, 1))
    if not accelerator._models:
        raise ConfigError(["run_of(): the Accelerator has no model; call accelerator.prepare() first"])
    run = Run(run_dir, **settings)
    require_all_ranks_of(accelerator, run)
    for name, objects in (
        ("model", accelerator._models),
        ("optimizer", accelerator._optimizers),
        ("scheduler", accelerator._schedulers),
        ("scaler", [each for each in [accelerator.scaler] if each is not None]),
        ("registered", accelerator._custom_objects),
    ):
        run.track(**numbered(name, objects))
    return run


def require_all_ranks_of(accelerator: Any, run: Run) -> None:  # noqa: ANN401
    """Refuse an `Accelerator`, also a Trainer's, that has other ranks than the run. Raises ConfigError."""
    fix = "without GPUs, set ACCELERATE_USE_CPU=true, Accelerator(cpu=True), or use_cpu=True of the Trainer"
    require_all_ranks("Accelerate", accelerator.num_processes, run, fix)
