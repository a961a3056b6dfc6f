"""Our training, started as by `python -m trainyard_train.train`, with a count of the checkpoint bytes that it
reads at its start.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any
from unittest.mock import patch

from benchmarks.peers.reads import counted
from trainyard_train import train
from trainyard_train.checkpointing.finding import Finder
from trainyard_train.config import load_config


def main() -> None:
    """Train by the settings."""
    settings = Path(sys.argv[1])
    run_dir = load_config(settings).run_dir
    load = Finder.load

    def noted(finder: Finder, *arguments: Any) -> object:  # noqa: ANN401 -- the arguments of `load`
        return counted(lambda: load(finder, *arguments), run_dir, finder.mesh.rank)

    with patch.object(Finder, "load", noted):
        train.main(["--config", str(settings)])


if __name__ == "__main__":
    main()
