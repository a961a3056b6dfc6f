"""Experiment on scaling rules: held-out error with a batch k times as large, for four learning rates: linear
(k times) with and without warmup, square root, and unscaled.

Goyal et al. 2017 in small: handwritten digits, equal epochs, the rate tuned at k = 1 alone, five
seeds. `python -m benchmarks.scaling_rule` prints the table of the docs.
It is an experiment and no benchmark: it has no target, and what fails is shown as it is.
"""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path
from statistics import mean, median
from typing import Any, Final

BATCH, EPOCHS, WARMUP_EPOCHS, TRAIN_SAMPLES = 8, 20, 4, 1438
FACTORS: Final = (1, 4, 16, 64)
SEEDS: Final = (1, 2, 3, 4, 5)
RATES: Final = (0.0025, 0.005, 0.01, 0.02, 0.04)
TUNING_SEEDS: Final = (101, 102)
FAILED: Final = 50
"""Error in per cent above which a run counts as failed; guessing has an error of 90."""
ARMS: Final[Mapping[str, tuple[str, bool]]] = {
    "linear, gradual warmup": ("linear", True),
    "linear, no warmup": ("linear", False),
    "square root, gradual warmup": ("sqrt", True),
    "not scaled": ("none", False),
}


def main() -> None:
    """Tune at k = 1, run every arm, print the table."""
    import torch

    from trainyard_train.elasticity import startup

    startup.defer_compiler()
    torch.set_num_threads(1)
    tuned = {rate: mean(_error(1, rate, "none", False, seed) for seed in TUNING_SEEDS) for rate in RATES}
    rate = min(tuned, key=lambda candidate: tuned[candidate])
    _print_line(f"tuned at k = 1: {rate} of {tuned}")
    errors = {arm: {k: _errors(k, rate, rule, warm) for k in FACTORS} for arm, (rule, warm) in ARMS.items()}
    for arm, by_factor in errors.items():
        _print_line(f"| {arm} | {' | '.join(map(_cell, by_factor.values()))} |")


def _cell(errors: Sequence[float]) -> str:
    failed = sum(error > FAILED for error in errors)
    text = f"{median(errors):.1f} ({min(errors):.1f}–{max(errors):.1f})"
    return f"{text}, {failed} of {len(errors)} failed" if failed else text


def _errors(k: int, rate: float, rule: str, warm: bool) -> list[float]:
    if k == 1:
        rule = "none"  # all are the same there, and counted once
    found = [_error(k, rate, rule, warm, seed) for seed in SEEDS]
    _print_line(f"k = {k}, {rule}, {'' if warm else 'no '}warmup: {found}")
    return found


@cache
def _error(k: int, rate: float, rule: str, warm: bool, seed: int) -> float:
    """Held-out error in per cent after the last epoch; 90 for a run that diverged, as if it had guessed."""
    from trainyard_train.config import parse_config
    from trainyard_train.contract import FILE, read_metrics
    from trainyard_train.elasticity.preemption import PreemptionNotice
    from trainyard_train.launchers import process_group
    from trainyard_train.trainer import DivergedError, Trainer

    steps_per_epoch = TRAIN_SAMPLES / (BATCH * k)
    steps = round(EPOCHS * steps_per_epoch)
    with tempfile.TemporaryDirectory() as folder:
        settings: dict[str, Any] = {
            "run_dir": folder,
            "steps": steps,
            "seed": seed,
            "model": {"name": "convnet", "hidden": 8, "dropout": 0},
            "data": {"batch_size_per_rank": BATCH * k},
            "optim": {
                "lr": rate,
                "scaling": rule,
                "reference_batch_size": BATCH,
                "warmup_steps": round(WARMUP_EPOCHS * steps_per_epoch) if warm else 0,
            },
            "checkpoint": {"every_steps": steps + 1},
            "evaluate_every": steps,
        }
        config = parse_config(settings)
        try:
            Trainer(config, process_group.join(config.timeouts, {}), PreemptionNotice(60)).run(0)
        except DivergedError:
            return 90.0
        looks = [line for line in read_metrics(Path(folder) / FILE) if line["event"] == "evaluation"]
    return 100 * (1 - float(looks[-1]["accuracy"]))


def _print_line(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
