"""Serves the commands of `trainyard_train` under their former name: `python -m training.train`.

Only commands are served, each found by its name in the folder where it is now. Programs import
`trainyard_train`: what is imported from here is a second copy of a module.
"""

from __future__ import annotations

from pathlib import Path

_PACKAGE = Path(__file__).parents[1] / "trainyard_train"
__path__ = [str(_PACKAGE / folder) for folder in ("", "data", "launchers", "observability")]
