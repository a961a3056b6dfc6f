"""Trains a run with DeepSpeed's engine, as one rank of mpirun or torchrun.

`mpirun -n 2 python -m trainyard_train.by_deepspeed --config FILE [--set key.sub=value ...] --deepspeed JSON`,
or the same under torchrun. DeepSpeed is an extra (`trainyard-train[deepspeed]`, the images `deepspeed`). It
partitions moments (from ZeRO 1), gradients (from ZeRO 2) and weights (ZeRO 3). Checkpoints are in DeepSpeed's
format, for one world size, in the run's folder. Exit codes are those of `trainyard_train.train`;
docs/moving.md lists what that module supports and this one does not.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, NoReturn

from trainyard_train.config import TrainConfig, load_config
from trainyard_train.config_base import ConfigError
from trainyard_train.contract import EXIT_PEER_FAILED, EXIT_PREEMPTED
from trainyard_train.elasticity.agent import exit_without_teardown, log_refusal
from trainyard_train.elasticity.preemption import PreemptionNotice
from trainyard_train.observability.rank_log import log_line

_NOT_HERE: Final = (
    "strategy",
    "parallel",
    "backend",
    "precision",
    "recompute",
    "deterministic",
    "compile",
    "export",
    "notices",
)
"""Settings of a run that DeepSpeed configures in another way, or lacks."""
_OURS: Final = {
    "train_batch_size": "data.batch_size_per_rank",
    "train_micro_batch_size_per_gpu": "data.batch_size_per_rank",
    "gradient_accumulation_steps": "accumulate",
    "optimizer": "optim",
    "scheduler": "optim",
}
"""Keys of DeepSpeed's file for which the run has settings."""


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Check both configurations, then train as one rank; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m trainyard_train.by_deepspeed", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file; see training/configs")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting"
    )
    parser.add_argument("--deepspeed", type=Path, required=True, help="DeepSpeed's own settings, as JSON")
    options = parser.parse_args(arguments)
    try:
        config = load_config(options.config, options.set)
        exit_without_teardown(_train(config, read_settings(options.deepspeed, config)))
    except ConfigError as error:
        exit_without_teardown(log_refusal(error))


def _train(config: TrainConfig, settings: dict[str, Any]) -> int:
    """Train as one rank; returns its exit code.

    Raises:
        ConfigError: there is but one rank, or no DeepSpeed, or the newest checkpoint is of another run.
    """
    notice = PreemptionNotice(config.timeouts.until_exit())
    notice.watch()  # before the imports, whose threads would receive the signal
    import torch

    from trainyard_train import deepspeed_run as zero
    from trainyard_train.launchers import process_group
    from trainyard_train.parallelism import mesh
    from trainyard_train.parallelism.fabric import refused_network

    torch.set_num_threads(config.threads)
    process_group.adopt_launcher_settings(os.environ)
    here = None
    try:
        here = process_group.join(config.timeouts)
        if here.world_size == 1:
            raise ConfigError(["ranks: got 1; allowed: 2 or more; start them by mpirun or torchrun"])
        finished = zero.DeepSpeedRun(config, settings, here, notice).run()
    except ConfigError:
        if here:
            here.refuse()
        raise
    except RuntimeError as error:
        if here and (wrong := refused_network(error)):
            here.refuse()
            raise wrong from error
        if not mesh.is_peer_failure(error):
            raise
        log_line(f"another rank has failed: {error}")
        return EXIT_PEER_FAILED
    return 0 if finished else EXIT_PREEMPTED


def read_settings(path: Path, config: TrainConfig) -> dict[str, Any]:
    """DeepSpeed's settings from a file, with those that the run's configuration decides.

    Raises:
        ConfigError: with every problem at once: the file is not a JSON object, a setting is in the wrong
            file, or a setting is not supported with DeepSpeed.
    """
    try:
        settings = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError([f"{path}: {error}; allowed: a file of DeepSpeed's settings, as JSON"]) from None
    if not isinstance(settings, dict):
        raise ConfigError([f"{path}: got {settings!r}; allowed: an object of DeepSpeed's settings"])
    problems = [
        f"{path}: {key}: got a value; allowed: none; remove it, and set {ours} in the run's configuration"
        for key, ours in _OURS.items()
        if key in settings
    ]
    fields = TrainConfig.model_fields
    problems += [
        f"{name}: got {getattr(config, name)}; allowed with DeepSpeed: {fields[name].default}, the default;"
        f" use DeepSpeed's setting in {path}, if it has one"
        for name in _NOT_HERE
        if getattr(config, name) != fields[name].default
    ]
    if config.checkpoint.store or not config.checkpoint.every_steps:
        problems.append(
            f"checkpoint: got store {config.checkpoint.store!r}, every_steps {config.checkpoint.every_steps};"
            " allowed with DeepSpeed: no store, and every_steps of 1 or more"
        )
    if problems:
        raise ConfigError(problems)
    return {
        "steps_per_print": sys.maxsize,  # metrics.jsonl has the same values
        "zero_allow_untested_optimizer": True,  # tests/training/test_by_deepspeed.py tests SGD
        **settings,
        "train_micro_batch_size_per_gpu": config.data.batch_size_per_rank // config.accumulate,
        "gradient_accumulation_steps": config.accumulate,
    }


if __name__ == "__main__":
    main()
