"""Coordinates the agents of several nodes by a monitor process on each: heartbeats, and rounds in which all
ranks restart together.

NCCL's collectives block for ever once a peer has died. So the agent of the failed rank tells the agents of
all nodes through a store, which node 0's monitor hosts; it serves the ranks, too, and survives all of them. A
*round* is one life of all ranks: an agent with a failed rank ends the round, once, and each agent starts its
ranks again for the next one.

The monitor is a separate process, since an agent that used the network could hang in it, and one with threads
could not be forked. It sends a heartbeat for its node every half second. Node 0's monitor ends the round if a
node falls silent; a monitor that cannot reach the store for as long reports that to its agent. A node whose
agent has started again, as after a restart of its container, ends the round too, and joins the next one.
"""

from __future__ import annotations

import ctypes
import json
import math
import os
import secrets
import signal
import threading
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Final, NamedTuple

from trainyard_train.contract import EXIT_PEER_FAILED
from trainyard_train.elasticity.config import TimeoutConfig

if TYPE_CHECKING:
    import torch.distributed as dist

BEAT_SECONDS: Final = 0.5
"""Seconds between two heartbeats of a node, and so the delay until an agent learns that a round is over."""
STORE_LINGER_SECONDS: Final = 5.0
"""Seconds that a failed or preempted node 0 keeps the store for nodes that have not ended yet."""
_EXIT_POLL_SECONDS: Final = 0.1
"""Seconds between two checks whether all nodes have ended."""
WAKE: Final = signal.SIGUSR1
"""Signal to the agent when its monitor has a message."""
NAME: Final = "node-monitor"
"""Process name, as `ps` shows it."""
_PR_SET_NAME: Final = 15
_PR_SET_PDEATHSIG: Final = 1
_ROUND: Final = "nodes/round"
_END: Final = "nodes/end"


class Round(NamedTuple):
    """The round that all nodes are in, counted from 0 since the store exists."""

    number: int
    why: str = ""
    """Reason why the round before ended."""


@dataclass(frozen=True)
class NodeEnded:
    """Message: a node's agent has ended, and the run cannot continue without it."""

    node: int
    code: int


@dataclass(frozen=True)
class Unreachable:
    """This node cannot reach the store, and so none of the other nodes."""

    why: str


@dataclass(frozen=True)
class _EndRound:
    """Command of an agent to its monitor: end this round."""

    number: int
    why: str


@dataclass(frozen=True)
class _Shutdown:
    """Command of an agent to its monitor: announce that this node ends, then exit."""

    code: int
    hosts_until_done: bool
    """Whether node 0 keeps the store until no other node needs it."""


Message = Round | NodeEnded | Unreachable


class MonitorHandle:
    """The agent's side of its monitor, a child process."""

    def __init__(
        self, node: int, count: int, address: tuple[str, int], timeouts: TimeoutConfig, seconds: float
    ) -> None:
        """Start the process.

        Args:
            node: number of this one.
            count: number of nodes.
            address: host and port of the store; node 0 opens it there.
            timeouts: timeouts of the run.
            seconds: maximum seconds to reach the store.
        """
        self._pipe, theirs = Pipe()
        agent = os.getpid()
        self.process = os.fork()
        if not self.process:
            try:
                die_with_parent(agent)
                ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode())
                MonitorProcess(node, count, address, timeouts.silence, theirs, agent).run(seconds)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()

    def messages(self) -> list[Message]:
        """The messages that have arrived since the last call."""
        found: list[Message] = []
        try:
            while self._pipe.poll():
                found.append(self._pipe.recv())
        except (EOFError, OSError):
            found.append(Unreachable("the monitor of this node has ended"))
        return found

    def end_round(self, number: int, why: str) -> None:
        """Let all nodes start their ranks again, unless this round is over already."""
        self._send(_EndRound(number, why))

    def shut_down(self, code: int, is_interrupted: Callable[[], bool]) -> None:
        """Announce to the other nodes that this node ends with an exit code.

        Waits until they know, but not for long; at node 0, if it has not failed, until they need the store no
        longer (see `MonitorProcess._host_until_done`).

        Args:
            code: exit code of this node.
            is_interrupted: polled; once true, the wait ends.
        """
        hosts_until_done = not code and not is_interrupted()
        self._send(_Shutdown(code, hosts_until_done))
        deadline = math.inf if hosts_until_done else time.monotonic() + 2 * STORE_LINGER_SECONDS
        with suppress(EOFError, OSError):  # the pipe closes when the monitor ends
            while time.monotonic() < deadline and not (hosts_until_done and is_interrupted()):
                if self._pipe.poll(BEAT_SECONDS):
                    self._pipe.recv()
        self.close()

    def close(self) -> None:
        """End the process."""
        self._pipe.close()
        if self.process:
            os.kill(self.process, signal.SIGKILL)
            os.waitpid(self.process, 0)

    def reaped(self) -> None:
        """Note that the process has ended, and its number may be another's."""
        self.process = 0

    def _send(self, command: _EndRound | _Shutdown) -> None:
        try:
            self._pipe.send(command)
        except OSError:  # the monitor has ended, which `messages` reports
            return


@dataclass
class MonitorProcess:
    """The monitor's side: joins the other nodes' monitors through the store."""

    node: int
    count: int
    address: tuple[str, int]
    silence: float
    pipe: Connection
    agent: int
    _round: str = ""
    """The current round, as encoded in the store."""
    _reached: float | None = None
    """Time of the store's last answer (monotonic clock); None before the first."""
    _beats: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Node → its last heartbeat and the time at which it came; on node 0 only."""
    _silent: set[int] = field(default_factory=set)
    """Nodes that have joined and no longer send heartbeats."""
    _join_deadline: float = 0
    """Time by which all nodes must have joined (monotonic clock): later ones have given up, or find no
    others."""
    _end: str = "none"
    """The node that has ended and its exit code, as encoded in the store."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, seconds: float) -> None:
        """Join the other nodes, then send heartbeats, until the agent ends or the store fails."""
        threading.Thread(target=self._watch, daemon=True).start()
        self._join_deadline = time.monotonic() + seconds
        try:
            store = self._connect(seconds)
            self._register(store)
            self._exchange(store)
            while self._handle_command(store):
                self._exchange(store)
        except (RuntimeError, TimeoutError, EOFError, OSError) as error:
            self._report_unreachable(str(error).partition("\n")[0])

    def _connect(self, seconds: float) -> dist.Store:
        import torch.distributed as dist

        host, port = self.address
        first = self.node == 0
        limit = timedelta(seconds=seconds)
        return dist.TCPStore(host, port, None, first, limit, wait_for_workers=False)

    def _register(self, store: dist.Store) -> None:
        """Make this node known; an agent that replaces another ends the round of that one."""
        if self.node == 0:
            for number in range(self.count):
                store.compare_set(f"nodes/beat/{number}", "", "none")
            store.set(_END, "none")
            store.set(_ROUND, json.dumps(Round(0)))
        self._round = store.get(_ROUND).decode()  # waits for node 0
        self._reached = time.monotonic()
        token = secrets.token_hex(8)
        if store.compare_set(f"nodes/agent/{self.node}", "", token).decode() != token:
            store.set(f"nodes/agent/{self.node}", token)
            self._end_round(store, _decoded(self._round).number, f"node {self.node} has restarted")
        else:
            self._send_message(_decoded(self._round))

    def _exchange(self, store: dist.Store) -> None:
        """Send a heartbeat, and forward the other nodes' messages to the agent."""
        store.set(f"nodes/beat/{self.node}", secrets.token_hex(4))
        found, end = (text.decode() for text in store.multi_get([_ROUND, _END]))
        self._reached = time.monotonic()
        if found != self._round:
            self._round = found
            self._send_message(_decoded(found))
        if end != self._end:
            self._end = end
            self._send_message(NodeEnded(*map(int, end.split())))
        if self.node == 0:
            self._check_heartbeats(store)

    def _check_heartbeats(self, store: dist.Store) -> None:
        """End the round of a node that has joined and fallen silent; once, until its heartbeat returns."""
        now = time.monotonic()
        beats = store.multi_get([f"nodes/beat/{number}" for number in range(self.count)])
        for number, beat in enumerate(text.decode() for text in beats):
            known, heard = self._beats.get(number, ("none", now))
            if beat != known:
                self._beats[number] = (beat, now)
                self._silent.discard(number)
            elif number in self._beats and number not in self._silent and now - heard > self.silence:
                self._silent.add(number)
                why = f"no heartbeat of node {number} for {self.silence:g} s"
                self._end_round(store, _decoded(self._round).number, why)

    def _handle_command(self, store: dist.Store) -> bool:
        """Handle a command of the agent until the next heartbeat is due; returns whether to go on."""
        if not self.pipe.poll(BEAT_SECONDS):
            return True
        command = self.pipe.recv()
        if isinstance(command, _EndRound):
            self._end_round(store, command.number, command.why)
            return True
        self._announce_exit(store, command)
        return False

    def _end_round(self, store: dist.Store, number: int, why: str) -> None:
        """Begin the next round, unless that has been done."""
        current = store.get(_ROUND).decode()
        if _decoded(current).number == number:
            store.compare_set(_ROUND, current, json.dumps(Round(number + 1, why)))

    def _announce_exit(self, store: dist.Store, command: _Shutdown) -> None:
        if command.code:
            store.compare_set(_END, "none", f"{self.node} {command.code}")
        store.set(f"nodes/ended/{self.node}", str(command.code))
        if self.node == 0:
            lingers_until = time.monotonic() + STORE_LINGER_SECONDS
            self._host_until_done(store, math.inf if command.hosts_until_done else lingers_until)

    def _host_until_done(self, store: dist.Store, deadline: float) -> None:
        """Keep the store until no other node needs it; with a deadline only connected ones count."""
        while (now := time.monotonic()) < deadline:
            come = {*self._beats} - self._silent
            if math.isinf(deadline) and now < self._join_deadline:
                come |= {*range(self.count)} - {*self._beats}
            if all(store.check([f"nodes/ended/{number}"]) for number in come - {0}):
                return
            time.sleep(_EXIT_POLL_SECONDS)
            self._exchange(store)

    def _watch(self) -> None:
        """Report that the store does not answer; the main thread may hang in it for ever."""
        while self._reached is None or time.monotonic() - self._reached <= self.silence:
            time.sleep(BEAT_SECONDS)
        self._report_unreachable(f"no answer from {self.address[0]}:{self.address[1]} for {self.silence:g} s")

    def _report_unreachable(self, why: str) -> None:
        self._send_message(Unreachable(why))
        os._exit(0)

    def _send_message(self, message: Message) -> None:
        with self._lock:
            try:
                self.pipe.send(message)
                os.kill(self.agent, WAKE)
            except OSError:  # the agent has ended, and so does this process
                return


def die_with_parent(agent: int) -> None:
    """Let the kernel kill this process when the agent dies, so that no orphan remains."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:  # the agent died before the call
        os._exit(EXIT_PEER_FAILED)


def _decoded(text: str) -> Round:
    return Round(*json.loads(text))
