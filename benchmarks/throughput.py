"""Samples per second of the training package, against bare torchrun and DDP with the same model and data."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Samples, alternating
from training.metrics import FILE, read_metrics

SETTINGS: Mapping[str, Any] = {
    "steps": 120,
    "seed": 7,
    "model": {"name": "convnet", "hidden": 64, "dropout": 0},
    "data": {"batch_size_per_rank": 64},
    "optim": {"lr": 0.02},
    "checkpoint": {"every_steps": 1000},
    "evaluate_every": 1000,
}
WARM_STEPS = 20
ROUNDS = 3
LAUNCH = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2", "-m"]


def measure() -> list[Figure]:
    """Train with either, and check that both reach the same loss before any time is believed."""
    ours, peer = alternating(
        lambda: _seconds("training.train"), lambda: _seconds("benchmarks.peers.ddp"), ROUNDS
    )
    return [
        Figure(
            "training: seconds for 1,000 samples, two ranks",
            Samples("trainyard", "s", ours),
            at_most=1 / 0.99,
            peer=Samples("torchrun and DDP", "s", peer),
        )
    ]


def _seconds(module: str) -> float:
    """Seconds for 1,000 samples from the 20th step to the last."""
    with tempfile.TemporaryDirectory() as folder:
        run_dir = Path(folder) / "run"
        settings = Path(folder) / "settings.json"
        settings.write_text(json.dumps({**SETTINGS, "run_dir": str(run_dir)}))
        ours = module == "training.train"
        arguments = ["--config", str(settings)] if ours else [str(settings)]
        subprocess.run([*LAUNCH, module, *arguments], check=True, stderr=subprocess.DEVNULL)
        steps = _ours(run_dir) if ours else _peer(run_dir)
    _check_loss(steps[WARM_STEPS - 1]["loss"])
    span = steps[-1]["time"] - steps[WARM_STEPS - 1]["time"]
    samples = (len(steps) - WARM_STEPS) * 2 * SETTINGS["data"]["batch_size_per_rank"]
    return float(span / samples * 1000)


def _ours(run_dir: Path) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run_dir / FILE) if line["event"] == "step"]


def _peer(run_dir: Path) -> list[dict[str, Any]]:
    ranks = [
        [json.loads(line) for line in (run_dir / f"steps-{rank}.jsonl").read_text().splitlines()]
        for rank in (0, 1)
    ]
    return [one | {"loss": (one["loss"] + other["loss"]) / 2} for one, other in zip(*ranks, strict=True)]


_losses: list[float] = []


def _check_loss(loss: float) -> None:
    """All runs of both arms share their loss at step 20, or they do not do the same work."""
    _losses.append(loss)
    if abs(loss - _losses[0]) > 1e-3 * _losses[0]:
        raise ValueError(f"step {WARM_STEPS}: loss {loss} in one arm, {_losses[0]} in the other")
