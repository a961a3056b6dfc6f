"""Start the ranks of a training run, or the agents of its nodes, as processes of this host.

They are forks of a server that has imported PyTorch, since the import takes most of a start.
"""

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import psutil
import torch

from tests.processes import TIMEOUT_SECONDS, free_port, wait_for
from trainyard_train import train
from trainyard_train.checkpointing.checkpoint import Checkpoint
from trainyard_train.checkpointing.saved import open_saved
from trainyard_train.contract import FILE, read_metrics
from trainyard_train.elasticity.nodes import NAME

LONG_TIMEOUTS = {"timeouts.silence": 20, "timeouts.collective": 120, "timeouts.leave": 60}
"""Timeouts that a busy host does not exceed: else a slow rank counts as failed."""
_SLOW_TO_IMPORT = [
    "trainyard_train.trainer",
    "trainyard_train.run",
    "torch._dynamo",
    "torch.distributed.fsdp",
]
_RUN_SECONDS = 4 * TIMEOUT_SECONDS
"""Limit for a whole run: four ranks took 190 s on two cores beside thirty other processes."""
server = multiprocessing.get_context("forkserver")
server.set_forkserver_preload(_SLOW_TO_IMPORT)


@dataclass
class Rank:
    """The process of a rank, or the agent of several ranks."""

    process: BaseProcess
    log: Path

    def wait(self, seconds: float = _RUN_SECONDS) -> tuple[int | None, str]:
        """Wait for its end; returns the exit code, None if it did not end in time, and its output."""
        self.process.join(seconds)
        output = self.log.read_text()
        self.log.unlink()
        return self.process.exitcode, output


@dataclass
class Ranks:
    """The processes of one attempt."""

    ranks: list[Rank]

    def wait(self) -> list[tuple[int | None, str]]:
        """Wait for all ranks; returns the exit code and the output of each. Kills those that still run."""
        try:
            return [rank.wait() for rank in self.ranks]
        finally:
            for rank in self.ranks:
                rank.process.kill()

    def until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds; if it does not, the error has the ranks' output."""
        wait_for(lambda: condition() or not any(rank.process.is_alive() for rank in self.ranks), self.output)
        assert condition(), f"all have ended: {self.output()}"

    def output(self) -> str:
        """Return the output of all ranks so far."""
        return "\n".join(rank.log.read_text() for rank in self.ranks)

    def send(self, rank: int, number: signal.Signals) -> None:
        pid = self.ranks[rank].process.pid
        assert pid
        os.kill(pid, number)


def settings(run_dir: Path, **values: object) -> list[str]:
    chosen = {
        "run_dir": run_dir,
        "steps": 60,
        "seed": 7,
        "model.hidden": 16,
        "data.batch_size_per_rank": 32,
        "checkpoint.every_steps": 10,
        **LONG_TIMEOUTS,
        **values,
    }
    return [part for key, value in chosen.items() for part in ("--set", f"{key}={value}")]


def start(
    world_size: int,
    arguments: Sequence[str],
    *,
    only: Sequence[int] | None = None,
    own: Sequence[Sequence[str]] | None = None,
    variables: Mapping[str, str] | None = None,
) -> Ranks:
    """Start ranks: all, or those in `only`. Each gets `arguments`, and what `own` has for its rank."""
    everyone = rank_variables(world_size)
    return Ranks(
        [
            _start({**everyone[rank], **(variables or {})}, [*arguments, *(own[rank] if own else ())])
            for rank in (only if only is not None else range(world_size))
        ]
    )


def rank_variables(world_size: int) -> list[dict[str, str]]:
    """Return each rank's variables, by which all rendezvous on this host."""
    shared = {"WORLD_SIZE": str(world_size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    return [{**shared, "RANK": str(rank), "NODE_NAME": f"node-{rank}"} for rank in range(world_size)]


def start_agent(ranks: int, arguments: Sequence[str], environment: Mapping[str, str]) -> Rank:
    """Start the agent of a run's only node, which starts this number of ranks."""
    return _start({"PET_NPROC_PER_NODE": str(ranks), **environment}, arguments)


@dataclass
class Nodes(Ranks):
    """The agents of one run, each with one rank, whose collectives hang once a peer has died."""

    arguments: Sequence[str]
    variables: Mapping[str, str]

    @staticmethod
    def start(count: int, arguments: Sequence[str], variables: Mapping[str, str] | None = None) -> "Nodes":
        """Start the agents of this number of nodes."""
        nodes = Nodes([], arguments, {**rendezvous_variables(count), **(variables or {})})
        nodes.ranks = [nodes.start_one(number) for number in range(count)]
        return nodes

    def start_one(self, number: int) -> Rank:
        """Start the agent of one node, the first one or a replacement."""
        own = {"PET_NODE_RANK": str(number), "NODE_NAME": f"node-{number}"}
        return _start({**self.variables, **own}, self.arguments, blocking=True)

    def rank_of(self, number: int) -> psutil.Process | None:
        """Return the process of a node's rank, or None if it does not run now."""
        return next(iter(ranks_of(self.ranks[number].process.pid)), None)


def rendezvous_variables(count: int) -> dict[str, str]:
    """Return the variables by which the agents of this number of nodes rendezvous on this host."""
    return {"PET_NNODES": str(count), "PET_MASTER_ADDR": "127.0.0.1", "PET_MASTER_PORT": str(free_port())}


def ranks_of(agent: int | None) -> list[psutil.Process]:
    """Return the running ranks of an agent, in the order of their start."""
    with suppress(psutil.NoSuchProcess):
        children = sorted(psutil.Process(agent).children(), key=lambda child: child.pid)
        return [child for child in children if child.name() != NAME]
    return []


def _start(environment: Mapping[str, str], arguments: Sequence[str], *, blocking: bool = False) -> Rank:
    log = Path(tempfile.mkstemp(prefix="rank-")[1])
    process = server.Process(target=_main, args=(environment, arguments, log, blocking), daemon=True)
    process.start()
    return Rank(process, log)


def _main(environment: Mapping[str, str], arguments: Sequence[str], log: Path, blocking: bool) -> None:
    os.environ.update(environment)
    os.dup2(os.open(log, os.O_WRONLY), sys.stderr.fileno())
    from tests.training import blocking as backend
    from tests.training import hold

    hold.install()
    if blocking:
        backend.install()
    train.main(arguments)


def run(world_size: int, arguments: Sequence[str]) -> str:
    """Run all ranks to their end; returns the sha256 of the final weights."""
    for code, output in start(world_size, arguments).wait():
        assert code == 0, f"exit code {code}: {output}"
    return sha256(Path(next(part.partition("=")[2] for part in arguments if part.startswith("run_dir="))))


def load_tensors(checkpoint: Checkpoint) -> dict[str, torch.Tensor]:
    """Return every tensor of a checkpoint, whole: `model.<name>` and `optimizer.<name>.<slot>`."""
    with open_saved(checkpoint.store, checkpoint.manifest.step) as saved:
        return {path: saved.tensor(path) for path in saved.kinds}


def sha256(run_dir: Path) -> str:
    return str(json.loads((run_dir / "final.json").read_text())["sha256"])


def events(run_dir: Path, name: str) -> list[dict[str, Any]]:
    return [line for line in read_metrics(run_dir / FILE) if line["event"] == name]


def reached(run_dir: Path, step: int, attempt: int = 1) -> bool:
    lines = events(run_dir, "step")
    return bool(lines) and lines[-1]["attempt"] == attempt and lines[-1]["step"] >= step


def terminate_ranks(mpirun: subprocess.Popen[bytes]) -> None:
    """Send SIGTERM to the ranks, as their pods' preStop hook does.

    `mpirun` itself would kill them a quarter of a second after its own SIGTERM.
    """
    ranks = psutil.Process(mpirun.pid).children()
    assert ranks
    for rank in ranks:
        rank.terminate()
