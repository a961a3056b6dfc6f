"""Benchmark: time from the kill of a worker to the first new step, and peak memory of rank 0, against
torchrun and against the launcher of NVIDIA's resiliency extension (NVRx).

With a small state the peer is torchrun with `torch.save`, and only the time is measured. With a large state
(515 MiB), which takes time to load, the peers use `dcp.async_save` and `dcp.load`, under torchrun and under
NVRx; both are tuned as ours is, huge pages included. NVRx can also restart a function within running
processes, but needs a spare process there to replace a killed rank.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Repeats, alternating, in_both_orders
from benchmarks.two_ranks import Bare, Dcp, Nvrx, Ours, wait_for

SETTINGS: dict[str, Any] = {
    "steps": 100_000,
    "seed": 7,
    "model": {"name": "convnet", "hidden": 16, "dropout": 0},
    "checkpoint": {"every_steps": 20},
    "pace_seconds": 0.05,
    "evaluate_every": 100_000,
}
KILL_AFTER_STEP = 30
ROUNDS = 3
LARGE: dict[str, Any] = SETTINGS | {
    "model": {"name": "mlp", "hidden": 900_000, "dropout": 0},
    "data": {"batch_size_per_rank": 8},
    "optim": {"lr": 1e-6},
    "checkpoint": {"every_steps": 5},
}
"""Settings of a large model: 67.5 million weights, with their momentum 515 MiB."""
LARGE_ROUNDS = 2
PEERS: dict[str, tuple[type[Bare], float]] = {
    "torchrun, dcp.load": (Dcp, 0.3),
    "NVRx, dcp.load": (Nvrx, 1.0),
}
"""Name of a peer → its arm, and the limit of our time as a share of its time."""


def measure() -> list[Figure]:
    """Kill one of two workers once it is past its first checkpoint; wait for the next step."""
    ours, peer = alternating(lambda: _restart(Ours), lambda: _restart(Bare), ROUNDS)
    return [
        *_large(),
        Figure(
            "worker killed → first new step, two ranks",
            Repeats("trainyard", "s", ours),
            at_most=0.5,
            peer=Repeats("torchrun --max-restarts", "s", peer),
        ),
    ]


def _large() -> list[Figure]:
    arms: dict[str, type[Ours | Bare]] = {"trainyard": Ours}
    arms |= {name: arm for name, (arm, _) in PEERS.items()}
    peaks: dict[str, list[float]] = {name: [] for name in arms}

    def once(name: str) -> float:
        seconds, peak = _restart_large(arms[name])
        peaks[name].append(peak)
        return seconds

    seconds = in_both_orders({name: partial(once, name) for name in arms}, LARGE_ROUNDS)
    claims = (
        ("worker killed → first new step, two ranks, 515 MiB of state", "s", seconds),
        ("peak memory of rank 0 by then", "MiB", peaks),
    )
    return [
        Figure(
            claim,
            Repeats("trainyard", unit, tuple(found["trainyard"])),
            at_most if unit == "s" else 1.1,
            peer=Repeats(name, unit, tuple(found[name])),
        )
        for claim, unit, found in claims
        for name, (_, at_most) in PEERS.items()
    ]


def _restart_large(arm: type[Ours | Bare]) -> tuple[float, float]:
    """Kill a worker once two checkpoints exist; seconds, and resident memory at most, in MiB."""
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:
        training = arm(Path(folder), LARGE)
        try:
            training.start()
            training.reach(2 * LARGE["checkpoint"]["every_steps"])
            wait_for(lambda: len(training.saves()) > 1)
            begin = training.kill_one()
            step = training.reach(0, attempt=2)
            return float(step["time"] - begin), step["resident_peak_bytes"] / 2**20
        finally:
            training.kill()


def _restart(arm: type[Ours | Bare]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        training = arm(Path(folder), SETTINGS)
        try:
            training.start()
            training.reach(KILL_AFTER_STEP)
            begin = training.kill_one()
            return float(training.reach(0, attempt=2)["time"] - begin)
        finally:
            training.kill()
