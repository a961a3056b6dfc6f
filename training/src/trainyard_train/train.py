"""Trains a model by a configuration: `python -m trainyard_train.train --config FILE`.

Alone on a laptop, as all ranks of a host (`--nproc-per-node`), under `torchrun` or `mpirun`, or in a pod
of Kubeflow Trainer. Exit codes: 0 finished, 1 failed, 2 the configuration is wrong and nothing was changed,
75 exited on a preemption notice with a checkpoint committed, 76 another rank failed, 77 not all ranks
arrived, 78 there are checkpoints and none can be used, 128 + n a rank was ended by signal n. After 75 to 77
and 128 + n, the next start resumes the run.
"""

from __future__ import annotations

import time

_STARTED = time.time()  # before the slow imports

import argparse  # noqa: E402
import math  # noqa: E402
import os  # noqa: E402
import sys  # noqa: E402
import traceback  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from functools import partial  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import NoReturn  # noqa: E402

from trainyard_train.checkpointing.config import FROM_SCRATCH  # noqa: E402
from trainyard_train.config import TrainConfig, load_config  # noqa: E402
from trainyard_train.config_base import ConfigError, RefusalError  # noqa: E402
from trainyard_train.contract import (  # noqa: E402
    EXIT_ABSENT_RANK,
    EXIT_FAILED,
    EXIT_PEER_FAILED,
    EXIT_PREEMPTED,
)
from trainyard_train.elasticity.agent import Agent, exit_without_teardown, log_refusal, node_of, require_linux  # noqa: E402
from trainyard_train.elasticity.preemption import listen  # noqa: E402
from trainyard_train.elasticity.rank_status import RankStatus  # noqa: E402
from trainyard_train.observability.rank_log import log_line  # noqa: E402


def main(arguments: Sequence[str] | None = None) -> NoReturn:
    """Check the configuration, then train; ends the process."""
    parser = argparse.ArgumentParser(prog="python -m trainyard_train.train", description=__doc__)
    parser.add_argument("--config", type=Path, help="YAML file, or the name of one of training/configs")
    parser.add_argument(
        "--set", action="append", default=[], metavar="KEY=VALUE", help="override one setting"
    )
    parser.add_argument(
        "--nproc-per-node", metavar="N", help="ranks to start on this host: a number, auto, gpu or cpu"
    )
    parser.add_argument("--from-scratch", action="store_true", help=FROM_SCRATCH)
    options = parser.parse_args(arguments)
    if options.from_scratch:
        options.set.append("checkpoint.from_scratch=true")
    if options.nproc_per_node:
        os.environ["PET_NPROC_PER_NODE"] = options.nproc_per_node
    try:
        config = load_config(options.config, options.set)
        exit_seconds = config.timeouts.until_exit(config.notices)
        given = os.environ.keys()
        if given & {"RANK", "OMPI_COMM_WORLD_RANK"} or not given & {"PET_NNODES", "PET_NPROC_PER_NODE"}:
            exit_without_teardown(_train(config, _STARTED, config.timeouts.rendezvous))
        # This process is to start all ranks of a node. Torchrun settles a number of nodes that may change.
        if ":" in os.environ.get("PET_NNODES", "") or "PET_RDZV_BACKEND" in given:
            # torchrun kills its workers 30 s after SIGTERM, by default.
            os.environ.setdefault("TORCH_ELASTIC_SHUTDOWN_TIMEOUT", str(math.ceil(exit_seconds)))
            module = ["-m", "trainyard_train.train", *(sys.argv[1:] if arguments is None else arguments)]
            os.execv(sys.executable, [sys.executable, "-m", "torch.distributed.run", *module])  # noqa: S606
        require_linux(node := node_of(os.environ), "-m", "trainyard_train.train", "--config", "FILE")
        prepare = partial(_import_for, config)
        agent = Agent(node, partial(_train, config), config.restarts, config.timeouts, prepare)
        exit_without_teardown(agent.run(_STARTED))
    except ConfigError as error:
        exit_without_teardown(log_refusal(error))


def _import_for(config: TrainConfig) -> None:
    """Import the modules of a rank that take long to import."""
    from trainyard_train.elasticity import startup

    startup.ask_for_huge_pages()
    import torch

    startup.defer_compiler()
    import trainyard_train.trainer  # noqa: F401

    if config.strategy == "fsdp":
        import torch.distributed.fsdp
    torch.set_num_threads(config.threads)


def _train(config: TrainConfig, started: float, rendezvous_seconds: float) -> int:
    """Train as one rank; returns its exit code.

    Args:
        config: configuration of the run.
        started: unix time, for the record.
        rendezvous_seconds: seconds for which the other ranks are waited for.
    """
    notice = listen(config.timeouts.until_exit(config.notices), config.notices)
    _import_for(config)
    from trainyard_train.elasticity import startup
    from trainyard_train.elasticity.heartbeats import STACKS
    from trainyard_train.elasticity.rendezvous import AbsentRankError
    from trainyard_train.launchers import process_group
    from trainyard_train.parallelism import mesh, nccl_log
    from trainyard_train.parallelism.fabric import refused_network
    from trainyard_train.trainer import Trainer

    here = trainer = None
    try:
        process_group.adopt_launcher_settings(os.environ)
        with startup.deterministic(config.deterministic):
            startup.record_collectives(config.run_dir / STACKS)
            nccl_log.record(os.environ)  # which the trainer reads after the first all-reduces
            here = process_group.join(
                config.timeouts, backend=config.backend, rendezvous_seconds=rendezvous_seconds
            )
            trainer = Trainer(config, here, notice)
            finished = trainer.run(started)
    except RefusalError as error:
        if here:
            here.refuse()
        if trainer:
            trainer.record_failure(str(error))
        return log_refusal(error)
    except Exception as error:
        if here and (wrong := refused_network(error)):
            here.refuse()
            return log_refusal(wrong)
        peer_failed, reason = mesh.is_peer_failure(error), f"{type(error).__name__}: {error}"
        if peer_failed:
            reason = "another rank has failed: " + str(error).partition("\n")[0]
        elif not isinstance(error, OSError | ValueError | ArithmeticError):  # whose message says enough
            traceback.print_exc()
            RankStatus.from_environment().note_exception(error)  # which a restart in place may heal
        if trainer:
            trainer.record_failure(reason)
            if trainer.saved_step is not None:
                reason += f"; the next start resumes from step {trainer.saved_step}"
        log_line(reason)
        absent = isinstance(error, AbsentRankError)
        return EXIT_PEER_FAILED if peer_failed else EXIT_ABSENT_RANK if absent else EXIT_FAILED
    return 0 if finished else EXIT_PREEMPTED


if __name__ == "__main__":
    main()
