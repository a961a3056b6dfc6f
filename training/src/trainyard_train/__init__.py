"""Distributed training that resumes bit-exactly from checkpoints after failures and preemptions: `Run`, for a
loop of yours, and import and export of checkpoints. It imports nothing of the rest of this project.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from trainyard_train.checkpointing.exporting import export_checkpoint as export_checkpoint
    from trainyard_train.checkpointing.finding import MismatchError as MismatchError
    from trainyard_train.checkpointing.importing import import_checkpoint as import_checkpoint
    from trainyard_train.checkpointing.saver import SaveError as SaveError
    from trainyard_train.config_base import ConfigError as ConfigError
    from trainyard_train.elasticity.config import TimeoutConfig as TimeoutConfig
    from trainyard_train.run import Run as Run

_EXPORTS = {
    "ConfigError": "config_base",
    "MismatchError": "checkpointing.finding",
    "Run": "run",
    "SaveError": "checkpointing.saver",
    "TimeoutConfig": "elasticity.config",
    "export_checkpoint": "checkpointing.exporting",
    "import_checkpoint": "checkpointing.importing",
}
__all__ = sorted(_EXPORTS)  # noqa: PLE0605 -- names are imported lazily, and PyTorch with them


def __getattr__(name: str) -> object:
    if name not in _EXPORTS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_EXPORTS[name]}"), name)
