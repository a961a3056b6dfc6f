"""Runs one part of the GPU benchmarks in this process: `python -m benchmarks.gpu PART FIGURES.json`."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

from benchmarks.gpu import encoded

if __name__ == "__main__":
    measured = importlib.import_module(f"benchmarks.gpu.{sys.argv[1]}").measure()
    Path(sys.argv[2]).write_text(json.dumps([encoded(each) for each in measured]))
