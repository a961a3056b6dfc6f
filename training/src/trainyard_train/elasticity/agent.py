"""This node's ranks: forks of one process that has imported PyTorch, started again in place.

torchrun starts every rank anew, and each imports PyTorch anew: most of the time from the loss of a rank to
the next step. Here the import is done once, by a process that computes nothing, has no threads of its own and
touches no GPU, so that it may be forked at any time; a node with eight ranks has it in memory once.

Nobody is asked across nodes. Ranks that have lost another end by themselves (`EXIT_LOST_RANK`), each node
starts its own again, and they meet where they met before (`elasticity.rendezvous`). If not all come back
soon, a node is lost: all end, and whoever started this process (JobSet) starts them elsewhere.
"""

from __future__ import annotations

import ctypes
import gc
import math
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from trainyard_train.config_base import ConfigError, problems_of
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.exit_codes import (
    EXIT_ABSENT_RANK,
    EXIT_FAILED,
    EXIT_LOST_RANK,
    EXIT_PREEMPTED,
    EXIT_WRONG_CONFIG,
)
from trainyard_train.observability.rank_log import log_line

_LEAVE: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_HEARD: Final = _LEAVE | {signal.SIGCHLD}
_GRACE_SECONDS: Final = 2.0
"""From the end of one rank to that of the others, which find out by themselves unless they hang."""
_PR_SET_PDEATHSIG: Final = 1

_SIGNALLED: Final = 128
"""The exit code of a process that a signal ended is that much more than the signal's number, as in shells."""

Work = Callable[[float, float], int]
"""What a rank does; takes the unix time at which it was started and the seconds for which it waits for the
others, and returns its exit code."""


class Node(BaseModel):
    """Which of the nodes this is, how many ranks each has, and where they meet."""

    model_config = ConfigDict(frozen=True)

    count: int = Field(default=1, ge=1, alias="PET_NNODES")
    number: int = Field(default=0, ge=0, alias="PET_NODE_RANK")
    processes: str = Field(default="1", pattern=r"^(auto|cpu|gpu|[1-9]\d*)$", alias="PET_NPROC_PER_NODE")
    """Ranks of each node; `auto`: one for each GPU, or for each CPU where there is none."""
    address: str = Field(default="127.0.0.1", alias="PET_MASTER_ADDR")
    """Of rank 0's node."""
    port: int = Field(default=0, ge=0, lt=1 << 16, alias="PET_MASTER_PORT")
    """There; 0: any that is free, where there is no other node that would have to know it."""

    @model_validator(mode="after")
    def _others_can_be_found(self) -> Node:
        problems = []
        if self.number >= self.count:
            problems.append(f"PET_NODE_RANK: got {self.number}; allowed: less than PET_NNODES ({self.count})")
        if self.count > 1 and not {"address", "port"} <= self.model_fields_set:
            problems.append(
                f"PET_MASTER_ADDR, PET_MASTER_PORT: missing; {self.count} nodes must know where rank 0 is"
            )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    def environment(self, local_rank: int, ranks: int, port: int) -> dict[str, str]:
        """What a rank is told, in the words of torchrun."""
        return {
            "RANK": str(self.number * ranks + local_rank),
            "WORLD_SIZE": str(self.count * ranks),
            "LOCAL_RANK": str(local_rank),
            "LOCAL_WORLD_SIZE": str(ranks),
            "MASTER_ADDR": self.address,
            "MASTER_PORT": str(port),
        }


def node_of(environment: Mapping[str, str]) -> Node:
    """This node, by torchrun's `PET_*` settings, which Kubeflow Trainer gives to every pod.

    Raises:
        ConfigError: with all that is missing or wrong.
    """
    try:
        return Node.model_validate(environment)
    except ValidationError as error:
        raise ConfigError(problems_of(error)) from None


@dataclass
class Agent:
    """Starts the ranks of a node, tells them what it is told, and starts them again if one is lost."""

    node: Node
    work: Work
    restarts: int
    timeouts: TimeoutConfig
    prepare: Callable[[], object] = lambda: None
    """Imports what ranks need."""
    _ranks: set[int] = field(default_factory=set)
    """Processes that live."""
    _ends: list[int] = field(default_factory=list)
    """Exit codes of this round's ranks; −9 for one that SIGKILL ended."""
    _told: bool = False
    """Whether this node was told to leave."""
    _cut_short: bool = False
    """Whether this round's last ranks were ended from here."""

    def run(self, started: float) -> int:
        """Let the ranks work to their end; returns one exit code for all of them.

        Call it from the main thread, before any other exists.

        Args:
            started: unix time at which this process began.

        Raises:
            ConfigError: there are no such processors here.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        ranks = _number_of(self.node.processes)
        self.prepare()
        gc.freeze()  # so that collecting garbage in a rank copies no pages of this process
        rendezvous_seconds = self.timeouts.rendezvous
        for restart in range(1, self.restarts + 2):
            code = self._round(ranks, started, rendezvous_seconds)
            died = code > _SIGNALLED
            if self._told or restart > self.restarts or not (died or code == EXIT_LOST_RANK):
                break
            # Ranks of other nodes may find out by this one's silence alone.
            rendezvous_seconds = self.timeouts.rejoin + (self.timeouts.silence if died else 0)
            started = time.time()
            what = f"ended by {signal.Signals(code - _SIGNALLED).name}" if died else "lost"
            log_line(f"a rank was {what}: starting this node's again ({restart} of {self.restarts} restarts)")
        return self._last_word(code, restart - 1)

    def _last_word(self, code: int, restarts: int) -> int:
        """What the ranks' last code means to whoever started this process, and may start all elsewhere."""
        if code == EXIT_ABSENT_RANK and restarts:  # it was there before: its node is lost
            code = EXIT_LOST_RANK
        elif code == EXIT_LOST_RANK and restarts and not self._told:  # all nodes came each time: none is lost
            log_line(f"a rank was lost after each of {restarts} restarts: starting again does not help")
            code = EXIT_FAILED
        return EXIT_PREEMPTED if self._told and code == EXIT_LOST_RANK else code

    def _round(self, ranks: int, started: float, rendezvous_seconds: float) -> int:
        """Start all ranks and wait for their ends; returns one exit code for all."""
        self._ends, self._cut_short = [], False
        port = self.node.port or _free_port()
        environments = [self.node.environment(rank, ranks, port) for rank in range(ranks)]
        self._ranks = {self._fork(each, started, rendezvous_seconds) for each in environments}
        deadline = math.inf
        while self._ranks:
            heard = signal.sigtimedwait(_HEARD, min(max(deadline - time.monotonic(), 0), 3600))
            if heard and heard.si_signo in _LEAVE:
                self._told = True
                self._send(signal.Signals(heard.si_signo))
            self._reap()
            if not self._cut_short and any(code not in {0, EXIT_PREEMPTED} for code in self._ends):
                deadline = min(deadline, time.monotonic() + _GRACE_SECONDS)
            if time.monotonic() >= deadline:
                self._cut_short, deadline = True, math.inf
                self._send(signal.SIGKILL)
        return verdict(self._ends)

    def _fork(self, environment: Mapping[str, str], started: float, rendezvous_seconds: float) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        agent = os.getpid()
        if process := os.fork():
            return process
        code = EXIT_FAILED
        try:
            _end_with(agent)
            os.setpgid(0, 0)  # Ctrl-C on a terminal is for the agent, which passes it on
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD})
            os.environ.update(environment)
            code = self.work(started, rendezvous_seconds)
        except BaseException:
            traceback.print_exc()
        finally:
            leave(code)

    def _send(self, number: signal.Signals) -> None:
        for process in self._ranks:
            os.kill(process, number)  # none is reaped elsewhere, so each is still there

    def _reap(self) -> None:
        """Note which ranks have ended."""
        while self._ranks:
            process, status = os.waitpid(-1, os.WNOHANG)
            if not process:
                return
            if process in self._ranks:
                self._ranks.remove(process)
                code = os.waitstatus_to_exitcode(status)
                self._ends.append(EXIT_LOST_RANK if self._cut_short else code)


def verdict(ends: Collection[int]) -> int:
    """One exit code for all ranks: that of the one that ended for a reason of its own."""
    for code in (EXIT_WRONG_CONFIG, EXIT_PREEMPTED):
        if code in ends:
            return code
    if died := [-code for code in ends if code < 0]:
        return _SIGNALLED + died[0]
    least = (0, EXIT_LOST_RANK, EXIT_ABSENT_RANK)
    return max(ends, key=lambda code: least.index(code) if code in least else len(least))


def refuse(error: ValueError) -> int:
    """Say all that is wrong; returns the exit code of what another start would not change."""
    for problem in str(error).splitlines():
        log_line(problem)
    return EXIT_WRONG_CONFIG


def leave(code: int) -> NoReturn:
    """End without tearing the process group down: with a rank gone that would wait for its timeout."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _end_with(agent: int) -> None:
    """Let the kernel kill this process when the agent dies, so that no rank stays behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:  # it died before that
        leave(EXIT_LOST_RANK)


def _number_of(processes: str) -> int:
    """How many ranks that is here."""
    if processes.isdecimal():
        return int(processes)
    gpus = 0 if processes == "cpu" else _count_gpus()
    if processes == "gpu" and not gpus:
        raise ConfigError(["PET_NPROC_PER_NODE: got 'gpu', but there is none; allowed: cpu, auto, a number"])
    return gpus or len(os.sched_getaffinity(0))


def _count_gpus() -> int:
    """Ask in a process that ends: one that has touched a GPU cannot be forked any more."""
    if process := os.fork():
        return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
    import torch

    os._exit(torch.cuda.device_count())


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
