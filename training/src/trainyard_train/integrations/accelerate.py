"""Hugging Face Accelerate: creates a `Run` that tracks what an `Accelerator` has prepared.

```python
model, optimizer, loader, scheduler = accelerator.prepare(model, optimizer, loader, scheduler)
run = run_of(accelerator, "/shared/runs/7", every_steps=100)
loader = run.batches(loader)
with run:
    for epoch in run.epochs(3):
        for batch in loader:
            ...
            run.step(loss)
sys.exit(run.exit_code)
```
With `accelerator.accumulate(model)`, call `run.step` only `if accelerator.sync_gradients`, and wrap the
loader by `run.batches(loader, per_step=None)`, since the last step of an epoch may take fewer batches.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from trainyard_train.config_base import ConfigError
from trainyard_train.run import Run


def run_of(accelerator: Any, run_dir: str | Path, **settings: Any) -> Run:  # noqa: ANN401
    """A run that tracks models, optimizers, schedulers, the scaler, and what was registered for checkpoints.

    Args:
        accelerator: an `accelerate.Accelerator`, after `prepare()`.
        run_dir: folder that all ranks share.
        settings: see `Run`.

    Raises:
        ConfigError: nothing was prepared, a setting is wrong, or something cannot be saved.
    """
    if not accelerator._models:
        raise ConfigError(["run_of(): the Accelerator has no model; call accelerator.prepare() first"])
    run = Run(run_dir, **settings)
    for name, objects in (
        ("model", accelerator._models),
        ("optimizer", accelerator._optimizers),
        ("scheduler", accelerator._schedulers),
        ("scaler", [each for each in [accelerator.scaler] if each is not None]),
        ("registered", accelerator._custom_objects),
    ):
        for number, each in enumerate(objects, start=1):
            run.track(**{name if number == 1 else f"{name}-{number}": each})
    return run
