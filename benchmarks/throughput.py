"""Samples per second of the training package, against bare torchrun and DDP with the same model and data."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure, Samples
from benchmarks.peers.steps import COMPARED, STEPS

SETTINGS: Mapping[str, Any] = {
    "steps": 100_000,
    "seed": 7,
    "model": {"name": "convnet", "hidden": 128, "dropout": 0},
    "data": {"batch_size_per_rank": 64},
    "optim": {"lr": 0.02},
}
BLOCKS = 15
"""Of each of A B B A."""
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


def measure() -> list[Figure]:
    """Train with both, in turn, and check that both reach the same losses before any time is believed."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Path(folder) / "settings.yaml"
        settings.write_text(json.dumps({**SETTINGS, "run_dir": f"{folder}/run"}))
        subprocess.run([*LAUNCH, "benchmarks.peers.steps", str(settings), str(BLOCKS)], check=True)
        measured = json.loads(settings.with_name("measured.json").read_text())
    _check(measured["losses"])
    return [
        _figure("time per sample, two ranks", measured["seconds"]),
        _figure(
            "CPU time per sample, which other work on the machine hardly touches", measured["cpu_seconds"]
        ),
    ]


def _figure(claim: str, seconds: Mapping[str, list[float]]) -> Figure:
    samples = STEPS * 2 * SETTINGS["data"]["batch_size_per_rank"]
    ours, peer = (tuple(taken / samples * 1e6 for taken in seconds[arm][2:]) for arm in ("ours", "peer"))
    ratios = [one / other for one, other in zip(ours, peer, strict=True)]
    return Figure(
        f"{claim} (median of paired ratios {median(ratios):.3f})",
        Samples("trainyard", "µs", ours),
        at_most=1 / 0.99,
        peer=Samples("torchrun and DDP", "µs", peer),
    )


def _check(losses: Mapping[str, list[float]]) -> None:
    """Both arms share their losses, or they do not do the same work."""
    for step, (one, other) in enumerate(zip(losses["ours"], losses["peer"], strict=True), start=1):
        if step <= COMPARED and abs(one - other) > 1e-3 * other:
            raise ValueError(f"step {step}: loss {one} in one arm, {other} in the other")
