"""Start ranks that run a function which uses the library, as forks of a server that has imported PyTorch."""

import os
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tests.training import hold
from tests.training.launch import Rank, Ranks, rank_variables, server
from trainyard_train.elasticity.config import GRACE_VARIABLE

Program = Callable[[Path, Mapping[str, Any]], int]


def start(
    program: Program,
    world_size: int,
    run_dir: Path,
    settings: Mapping[str, Any],
    variables: Mapping[str, str] | None = None,
) -> Ranks:
    """Start all ranks."""
    ranks = []
    for of_rank in rank_variables(world_size):
        environment = {
            **of_rank,
            GRACE_VARIABLE: "120",  # else a save on a preemption notice has ten seconds
            **settings.get("environment", {}),
            **(variables or {}),
        }
        log = Path(tempfile.mkstemp(prefix="rank-")[1])
        arguments = (program, environment, run_dir, settings, log)
        process = server.Process(target=_main, args=arguments)  # a daemon could not start DataLoader workers
        process.start()
        ranks.append(Rank(process, log))
    return Ranks(ranks)


def run(program: Program, world_size: int, run_dir: Path, settings: Mapping[str, Any]) -> Sequence[str]:
    """Run all ranks to their end; returns the output of each."""
    ended = start(program, world_size, run_dir, settings).wait()
    assert [code for code, _ in ended] == [0] * world_size, ended
    return [output for _, output in ended]


def _main(
    program: Program, environment: Mapping[str, str], run_dir: Path, settings: Mapping[str, Any], log: Path
) -> None:
    os.environ.update(environment)
    os.dup2(os.open(log, os.O_WRONLY), sys.stderr.fileno())
    torch.set_num_threads(1)
    hold.install()
    sys.exit(program(run_dir, settings))
