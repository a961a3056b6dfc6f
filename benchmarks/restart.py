"""From the death of a worker to the first new step, against bare torchrun that saves every N steps."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from benchmarks.figures import Figure, Samples, alternating
from benchmarks.two_ranks import Bare, Ours

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


def measure() -> list[Figure]:
    """Kill one of two workers once it is past its first checkpoint; wait for the next step."""
    ours, peer = alternating(lambda: _restart(Ours), lambda: _restart(Bare), ROUNDS)
    return [
        Figure(
            "worker killed → first new step, two ranks",
            Samples("trainyard", "s", ours),
            at_most=0.5,
            peer=Samples("torchrun --max-restarts", "s", peer),
        )
    ]


def _restart(arm: type[Ours | Bare]) -> float:
    with tempfile.TemporaryDirectory() as folder:
        training = arm(Path(folder), SETTINGS)
        try:
            training.start()
            training.reach(KILL_AFTER_STEP)
            begin = training.lose_one()
            return float(training.reach(0, attempt=2)["time"] - begin)
        finally:
            training.kill()
