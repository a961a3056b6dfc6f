"""The elastic agent of a node: forks its ranks, watches them, restarts them in place, and passes signals on
to them.

It imports PyTorch once and forks the ranks, which share this memory. It computes nothing, has one thread and
touches no GPU, so that it can fork at any time. The agents of several nodes agree on when all ranks are
started again (`elasticity.nodes`). If not all nodes rejoin soon, one has failed: all agents exit, and JobSet
starts the pods elsewhere.
"""

from __future__ import annotations

import gc
import math
import os
import platform
import shlex
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Final, NoReturn

from pydantic import BaseModel, ConfigDict, Field, model_validator

from trainyard_train.config_base import ConfigError, RefusalError, validated
from trainyard_train.contract import (
    EXIT_ABSENT_RANK,
    EXIT_FAILED,
    EXIT_NO_FABRIC,
    EXIT_NOT_DURABLE,
    EXIT_PEER_FAILED,
    EXIT_PREEMPTED,
    EXIT_UNUSABLE,
    EXIT_WRONG_CONFIG,
)
from trainyard_train.elasticity import node_memory
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.nodes import (
    BEAT_SECONDS,
    WAKE,
    MonitorHandle,
    NodeEnded,
    Round,
    Unreachable,
    die_with_parent,
)
from trainyard_train.elasticity.rank_status import RankStatus, RankStatuses
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism import accelerators

_TERMINATION_SIGNALS: Final = frozenset({signal.SIGTERM, signal.SIGINT})
_HEARD: Final = _TERMINATION_SIGNALS | {signal.SIGCHLD, WAKE}
_GRACE_SECONDS: Final = 2.0
"""Seconds that other ranks may continue after one failed; they often fail for the same reason."""
_FAILED_RANK_SECONDS: Final = 1.0
"""Seconds that other ranks have to notice a dead rank, here or elsewhere, and to exit; then they are
killed."""
_PREEMPTED_SECONDS: Final = 10.0
"""Seconds that ranks have to exit after a node was preempted: they have saved with it, or hang."""
_MAX_RESTART_SKEW_SECONDS: Final = _FAILED_RANK_SECONDS + BEAT_SECONDS + 1.0
"""Maximum time between the restarts of two nodes' ranks: one node learns of a failed rank later and lets its
ranks exit by themselves, and a second for scheduling."""

_UNCOUNTED: Final = 255
"""Exit code of the process that counts GPUs if it cannot: no node has so many."""

Work = Callable[[float, float], int]
"""Function that a rank executes. Its arguments are the Unix time of its start and the seconds to wait for the
other ranks; it returns the rank's exit code."""


class Node(BaseModel):
    """This node's number, the ranks per node, and the rendezvous address."""

    model_config = ConfigDict(frozen=True)

    count: int = Field(default=1, ge=1, alias="PET_NNODES")
    number: int = Field(default=0, ge=0, alias="PET_NODE_RANK")
    processes: str = Field(default="1", pattern=r"^(auto|cpu|gpu|[1-9]\d*)$", alias="PET_NPROC_PER_NODE")
    """Ranks of each node; `auto`: one for each GPU, or for each CPU where there is none."""
    address: str = Field(default="127.0.0.1", alias="PET_MASTER_ADDR")
    """Address of rank 0's node."""
    port: int = Field(default=0, ge=0, lt=1 << 16, alias="PET_MASTER_PORT")
    """Port on that address; 0: any free one, for a single node."""

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
        """Environment of a rank, as torchrun sets it."""
        of_agent = {"TORCHELASTIC_USE_AGENT_STORE": "True"} if self.count > 1 else {}
        return of_agent | {
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
        ConfigError: variables are missing or wrong; the message has all of them.
    """
    return validated(Node, environment)


@dataclass
class Agent:
    """Starts the ranks of a node, passes signals on to them, and restarts them if one fails."""

    node: Node
    work: Work
    max_restarts: int
    """Maximum number of restarts in a row without a newer checkpoint in between."""
    timeouts: TimeoutConfig
    prepare: Callable[[], object] = lambda: None
    """Imports what ranks need, before the first fork."""
    _ranks: dict[int, int] = field(default_factory=dict)
    """Process → local rank, for each running process."""
    _stopped: dict[int, float] = field(default_factory=dict)
    """Process → time since when it is stopped, as by SIGSTOP (monotonic clock)."""
    _exit_codes: list[int] = field(default_factory=list)
    """Exit codes of this round's ranks; −9 for one that was ended by SIGKILL, 137 if it returned that."""
    _is_preempted: bool = False
    """Whether this node has a preemption notice."""
    _raised: set[int] = field(default_factory=set)
    """Exceptions that ended ranks of this round, as `RankStatus.raised`."""
    _raised_before: set[int] = field(default_factory=set)
    """Those of the round before."""
    _was_cut_short: bool = False
    """Whether this agent killed the last ranks of the round."""
    _monitor: MonitorHandle | None = None
    """The monitor of the other nodes; None where there is a single node."""
    _current_round: Round = field(default_factory=lambda: Round(-1))
    """The round that this node's ranks are in."""
    _last_message: Round | NodeEnded | Unreachable | None = None
    """The monitor's last message since this round began, which says that the round is over, and why."""

    def run(self, started: float) -> int:
        """Run the ranks to their end; returns one exit code for all of them.

        Call it from the main thread, before any other exists.

        Args:
            started: unix time at which this process began.

        Raises:
            ConfigError: there are no such processors here, or GPUs that were asked for cannot be used.
        """
        signal.pthread_sigmask(signal.SIG_BLOCK, _HEARD)
        self.prepare()
        ranks = _number_of(self.node.processes)  # the process that asks for GPUs has PyTorch by now
        gc.freeze()  # so that collecting garbage in a rank copies no pages of this process
        self._statuses = RankStatuses.create(ranks)
        self._memory = node_memory.create(ranks)
        if self._join(self.timeouts.rendezvous):
            code = self._run_rounds(ranks, started)
            code = 128 - code if code < 0 else code  # as in shells: 137 for −9
        else:
            code = EXIT_PREEMPTED if self._is_preempted else EXIT_ABSENT_RANK
        if self._monitor:
            self._monitor.shut_down(code, self._has_notice)
        return code

    def _has_notice(self) -> bool:
        return self._is_preempted or bool(_TERMINATION_SIGNALS & signal.sigpending())

    def _run_rounds(self, ranks: int, started: float) -> int:
        """Start the ranks until they end for good; returns one exit code, negative for a signal."""
        seconds = self.timeouts.rendezvous
        restarted, restarts_since_checkpoint, saved_step = False, 0, 0
        while True:
            code = self._run_round(ranks, started, seconds)
            if self._statuses.saved_step > saved_step:
                saved_step, restarts_since_checkpoint = self._statuses.saved_step, 0
            died = code < 0
            if self._is_preempted or not (died or code == EXIT_PEER_FAILED):
                break
            if restarts_since_checkpoint == self.max_restarts:
                return self._give_up(code)
            if not self._join_next_round():
                break
            restarted, restarts_since_checkpoint = True, restarts_since_checkpoint + 1
            seconds = self.timeouts.rejoin + (_MAX_RESTART_SKEW_SECONDS if self._monitor else 0)
            started = time.time()
            signalled = f"a rank was killed by {signal.Signals(-code).name}" if died else ""
            log_line(
                f"{signalled or self._current_round.why or 'a rank failed'}: restarting this node's ranks"
                f" ({restarts_since_checkpoint} of {self.max_restarts} restarts without a newer checkpoint)"
            )
        if code == EXIT_ABSENT_RANK and restarted:  # a rank that had joined is absent: its node failed
            return EXIT_PEER_FAILED
        return EXIT_PREEMPTED if self._is_preempted and code == EXIT_PEER_FAILED else code

    def _give_up(self, code: int) -> int:
        """Return the exit code once restarts are exhausted: EXIT_FAILED if every node rejoined each time."""
        every_node_rejoined = isinstance(self._last_message, Round | None)
        if self._raised and not self.max_restarts:
            return EXIT_FAILED
        if code != EXIT_PEER_FAILED or not self.max_restarts or not every_node_rejoined:
            return code
        log_line(
            f"a rank failed after each of {self.max_restarts} restarts without a newer checkpoint:"
            " not restarting again; see the ranks' errors above"
        )
        return EXIT_FAILED

    def _join(self, seconds: float) -> bool:
        """Rendezvous with the other nodes; returns whether they were reached in time."""
        if self.node.count == 1:
            return True
        if self._monitor:
            self._monitor.close()
        address = (self.node.address, self.node.port)
        self._last_message = None
        self._monitor = MonitorHandle(self.node.number, self.node.count, address, self.timeouts, seconds)
        return self._await_round(seconds)

    def _join_next_round(self) -> bool:
        """Agree with the other nodes on the round that follows; returns whether they were reached in time."""
        if not self._monitor:
            return True
        seconds = self.timeouts.rejoin + _MAX_RESTART_SKEW_SECONDS
        # Node 0's agent may have restarted, with a new store.
        if self._await_round(seconds):
            return True
        return isinstance(self._last_message, Unreachable) and self._join(seconds)

    def _await_round(self, seconds: float) -> bool:
        """Wait for the round after this node's last one; returns whether it came in time."""
        deadline = time.monotonic() + seconds
        while self._last_message is None and not self._is_preempted and time.monotonic() < deadline:
            self._listen(deadline)
        if isinstance(self._last_message, Round):
            self._current_round, self._last_message = self._last_message, None
            return True
        if isinstance(self._last_message, Unreachable):
            why = self._last_message.why
            log_line(f"node 0 cannot be reached at {self.node.address}:{self.node.port}: {why}")
        return False

    def _run_round(self, ranks: int, started: float, rendezvous_seconds: float) -> int:
        """Start all ranks and wait for their ends; returns one exit code for all, negative for a signal."""
        self._exit_codes, self._was_cut_short = [], False
        self._raised, self._raised_before = set(), self._raised
        self._statuses.clear()
        port = self.node.port or _free_port()
        for rank in range(ranks):
            environment = self.node.environment(rank, ranks, port) | self._statuses.environment(rank)
            environment |= node_memory.environment(self._memory, rank)
            self._ranks[self._fork(environment, started, rendezvous_seconds)] = rank
        deadline, reported = math.inf, False
        while self._ranks:
            self._listen(deadline)
            self._kill_stopped()
            if not self._was_cut_short:
                deadline = min(deadline, time.monotonic() + self._seconds_left())
            if not reported and self._has_failed_rank():
                reported = True
                if self._monitor and not self._is_preempted:
                    why = f"node {self.node.number} has a failed rank"
                    self._monitor.end_round(self._current_round.number, why)
            if time.monotonic() >= deadline:
                self._was_cut_short, deadline = True, math.inf
                self._signal_ranks(signal.SIGKILL)
        return combined_exit_code(self._exit_codes)

    def _seconds_left(self) -> float:
        """Seconds until running ranks are killed; infinite while nothing is wrong."""
        if isinstance(self._last_message, NodeEnded) and self._last_message.code == EXIT_PREEMPTED:
            return _PREEMPTED_SECONDS
        if self._last_message or self._has_failed_rank():
            return _FAILED_RANK_SECONDS
        failed = any(code not in {0, EXIT_PREEMPTED} for code in self._exit_codes)
        return _GRACE_SECONDS if failed else math.inf

    def _has_failed_rank(self) -> bool:
        """Whether one of this node's ranks has died, or ended since another had."""
        return any(code < 0 or code == EXIT_PEER_FAILED for code in self._exit_codes)

    def _kill_stopped(self) -> None:
        """End ranks that were stopped (SIGSTOP): their peers would wait for ever."""
        for process, since in list(self._stopped.items()):
            if time.monotonic() - since >= self.timeouts.silence:
                log_line(
                    f"local rank {self._ranks[process]} has been stopped (SIGSTOP) for"
                    f" {self.timeouts.silence:g} s: killing it"
                )
                del self._stopped[process]
                os.kill(process, signal.SIGKILL)

    def _listen(self, deadline: float) -> None:
        """Wait for a signal; forward it to the ranks, reap processes and read the monitor's messages."""
        stopped = (since + self.timeouts.silence for since in self._stopped.values())
        seconds = min(deadline, *stopped, math.inf) - time.monotonic()
        assert hasattr(signal, "sigtimedwait")
        heard = signal.sigtimedwait(_HEARD, min(max(seconds, 0), 3600))
        if heard and heard.si_signo in _TERMINATION_SIGNALS:
            self._is_preempted = True
            self._signal_ranks(signal.Signals(heard.si_signo))
        self._reap()
        for message in self._monitor.messages() if self._monitor else []:
            if not isinstance(self._last_message, NodeEnded | Unreachable):  # no later message replaces these
                self._last_message = message

    def _fork(self, environment: Mapping[str, str], started: float, rendezvous_seconds: float) -> int:
        sys.stdout.flush()
        sys.stderr.flush()
        agent = os.getpid()
        if process := os.fork():
            return process
        code = EXIT_FAILED
        try:
            die_with_parent(agent)
            os.setpgid(0, 0)  # Ctrl-C on a terminal is for the agent, which passes it on
            signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGCHLD, WAKE})
            os.environ.update(environment)
            code = self.work(started, rendezvous_seconds)
        except BaseException as error:
            traceback.print_exc()
            RankStatus.from_environment().note_exception(error)
        finally:
            exit_without_teardown(code)

    def _signal_ranks(self, number: signal.Signals) -> None:
        for process in self._ranks:
            os.kill(process, number)  # none is reaped elsewhere, so each is still there

    def _reap(self) -> None:
        """Note which ranks have ended, were stopped or continue."""
        while True:
            try:
                process, status = os.waitpid(-1, os.WNOHANG | os.WUNTRACED | os.WCONTINUED)
            except ChildProcessError:
                return
            if not process:
                return
            if self._monitor and process == self._monitor.process:
                self._monitor.reaped()
            elif process not in self._ranks:
                continue
            elif os.WIFSTOPPED(status):
                self._stopped[process] = time.monotonic()
            elif os.WIFCONTINUED(status):
                self._stopped.pop(process, None)
            else:
                self._stopped.pop(process, None)
                self._exit_codes.append(self._code_of(self._ranks.pop(process), status))

    def _code_of(self, rank: int, ended: int) -> int:
        """The exit code of a rank, by its meaning: an exception may heal by a restart, an exit may not."""
        code = os.waitstatus_to_exitcode(ended)
        status = self._statuses.ranks[rank]
        aborted_in_collective = code == -signal.SIGABRT and status.stalled
        raised = code == EXIT_FAILED and not self._is_preempted and status.raised
        if raised:
            self._raised.add(raised)
            if raised in self._raised_before:
                log_line(
                    f"local rank {rank} has raised the same exception after the same step again: not"
                    " restarting; see both tracebacks above"
                )
                return EXIT_FAILED
        return EXIT_PEER_FAILED if self._was_cut_short or aborted_in_collective or raised else code


def combined_exit_code(ends: Collection[int]) -> int:
    """Return one exit code for all ranks, negative for a signal: that of the rank whose failure ended the
    others.
    """
    for code in (EXIT_WRONG_CONFIG, EXIT_UNUSABLE, EXIT_NOT_DURABLE, EXIT_NO_FABRIC, EXIT_PREEMPTED):
        if code in ends:
            return code
    if died := [code for code in ends if code < 0]:
        return died[0]
    least = (0, EXIT_PEER_FAILED, EXIT_ABSENT_RANK)
    return max(ends, key=lambda code: least.index(code) if code in least else len(least))


def log_refusal(error: RefusalError) -> int:
    """Log every problem; returns the exit code."""
    for problem in str(error).splitlines():
        log_line(problem)
    return error.exit_code


def require_linux(node: Node, *program: str) -> None:
    """Raise ConfigError elsewhere, with the command to use there: macOS aborts processes that PyTorch forks.

    Args:
        node: the node to start the ranks of.
        program: the words that start one rank, after `python`.
    """
    if platform.system() != "Linux":
        start = ["python"]
        if node.processes != "1":
            start = ["torchrun", "--standalone", f"--nproc-per-node={node.processes}"]
        raise ConfigError(
            [f"starting ranks needs Linux: the agent forks. On this host: {shlex.join([*start, *program])}"]
        )


def exit_without_teardown(code: int) -> NoReturn:
    """Exit without tearing the process group down, which waits for its timeout once a rank has died."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def _number_of(processes: str) -> int:
    """Number of ranks that a value of `PET_NPROC_PER_NODE` means on this host."""
    counts = processes in {"auto", "gpu"} or accelerators.are_asked_for(os.environ)
    gpus = _count_gpus() if counts else 0
    if processes.isdecimal():
        return int(processes)
    if processes == "gpu" and not gpus:
        raise ConfigError(["PET_NPROC_PER_NODE: got 'gpu', but there is none; allowed: cpu, auto, a number"])
    assert hasattr(os, "sched_getaffinity")
    return (gpus if processes != "cpu" else 0) or len(os.sched_getaffinity(0))


def _count_gpus() -> int:
    """Ask in a process that ends: one that has touched a GPU cannot be forked any more."""
    reader, writer = os.pipe()
    if process := os.fork():
        os.close(writer)
        with os.fdopen(reader) as pipe:
            problems = pipe.read().splitlines()
        gpus = os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])
        if not problems and not 0 <= gpus < _UNCOUNTED:
            reason = "failed, see above" if gpus == _UNCOUNTED else f"was ended by signal {-gpus}"
            problem = f"PET_NPROC_PER_NODE: PyTorch {reason} when asked for the number of GPUs"
            problems = [f"{problem}; allowed: cpu, a number; install PyTorch, or set one of these"]
        if problems:
            raise ConfigError(problems)
        return gpus
    gpus = _UNCOUNTED
    try:
        import torch

        accelerators.check(os.environ)
        gpus = torch.cuda.device_count()
    except ConfigError as error:
        os.write(writer, str(error).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(gpus)


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
        return port
