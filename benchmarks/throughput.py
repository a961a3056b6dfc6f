"""Benchmark: wall and CPU time per training sample, against DDP (default and tuned), Accelerate and Lightning
with the same model and data, and the cost of deterministic algorithms.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.figures import Figure, Repeats
from benchmarks.peers.steps import COMPARED, FREE, STEPS
from benchmarks.two_ranks import LAUNCH, check_same_losses

SETTINGS: Mapping[str, Any] = {
    "steps": 100_000,
    "seed": 7,
    "model": {"name": "convnet", "hidden": 128, "dropout": 0},
    "data": {"batch_size_per_rank": 64},
    "optim": {"lr": 0.02},
}
BLOCKS = 15
"""Rounds, each of which runs a block of steps of every arm twice, in the order A B … F F … B A."""
PEERS = {
    "bare": ("torchrun and DDP, default settings", 1 / 0.99),
    "tuned": ("torchrun and DDP, tuned as ours", 1.02),
    "accelerate": ("Accelerate, default settings", 1.0),
    "lightning": ("Lightning, default settings", 1.0),
    FREE: ("torchrun and DDP, tuned as ours, algorithms of PyTorch's choice", 1.05),
}
"""Arm → its name, and the limit of our time as a share of its time. The tuned loop uses channels last, a
fused optimizer, and gradients as views of the buckets. All arms have the same number of threads, and all but
`FREE` run with deterministic algorithms."""


def measure() -> list[Figure]:
    """Train with all, alternating, and check that they reach the same losses before any time is believed."""
    measured = run(SETTINGS, BLOCKS)
    check(measured["losses"])
    clocks = {
        "seconds": "time per sample",
        "cpu_seconds": "CPU time per sample",
    }
    figures = [
        _figure(f"{claim}, two ranks", measured[clock], peer)
        for peer in PEERS
        if peer != FREE
        for clock, claim in clocks.items()
    ]
    return figures + [
        _figure(f"deterministic algorithms, {claim}", measured[clock], FREE, ours="tuned")
        for clock, claim in clocks.items()
    ]


def run(settings: Mapping[str, Any], blocks: int) -> dict[str, Any]:
    """Return what `benchmarks.peers.steps` measures."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "settings.yaml"
        file.write_text(json.dumps({**settings, "run_dir": f"{folder}/run"}))
        subprocess.run([*LAUNCH, "benchmarks.peers.steps", str(file), str(blocks)], check=True)
        measured: dict[str, Any] = json.loads(file.with_name("measured.json").read_text())
        return measured


def check(losses: Mapping[str, list[float]]) -> None:
    """Compare the losses of all arms, which must do the same work.

    Raises:
        ValueError: with the first step at which two differ.
    """
    for peer in PEERS:
        check_same_losses(losses["ours"][:COMPARED], losses[peer][:COMPARED])


def _figure(claim: str, seconds: Mapping[str, list[float]], peer: str, ours: str = "ours") -> Figure:
    samples = STEPS * 2 * SETTINGS["data"]["batch_size_per_rank"]
    mine, theirs = (tuple(taken / samples * 1e6 for taken in seconds[arm][2:]) for arm in (ours, peer))
    ratios = [one / other for one, other in zip(mine, theirs, strict=True)]
    name, at_most = PEERS[peer]
    return Figure(
        f"{claim} (median of paired ratios {median(ratios):.3f})",
        Repeats("trainyard" if ours == "ours" else "torchrun and DDP, tuned as ours", "µs", mine),
        at_most=at_most,
        peer=Repeats(name, "µs", theirs),
    )
