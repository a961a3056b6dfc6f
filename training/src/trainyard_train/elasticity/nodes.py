"""Coordinates the agents of several nodes: heartbeats, and rounds in which all ranks restart together.

Where a collective blocks for ever once a peer has died, as NCCL's do, no rank notices by itself. Its agent
notices the process's end at once, and informs the agents of all nodes through a store that node 0's agent
hosts; the same store serves the ranks, so it survives all of them. A *round* is one life of all ranks: an
agent with a failed rank ends the round, once, and each agent restarts its ranks for the next one.

Each agent has a monitor for this, a separate process: an agent that used the network could hang in it, and
one with threads could not be forked. The monitor sends a heartbeat for its node every half second. Node 0's
monitor ends the round of a node that falls silent; one that cannot reach the store for as long reports it to
its agent. A new agent of a node that the store knows already, as after a restart of its container, ends the
round too, and joins the next one.
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
from typing import TYPE_CHECKING, Final

from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.exit_codes import EXIT_PEER_FAILED

if TYPE_CHECKING:
    import torch.distributed as dist

BEAT_SECONDS: Final = 0.5
"""Between two heartbeats of a node: an agent hears that a round is over within that time."""
FAREWELL_SECONDS: Final = 5.0
"""For which node 0, having failed or with a notice, keeps the store for nodes that have not ended yet."""
_LOOK_SECONDS: Final = 0.1
"""Between two looks whether all nodes have ended."""
WAKE: Final = signal.SIGUSR1
"""Sent to the agent when its monitor has a message."""
NAME: Final = "node-monitor"
"""Of the process, in `ps`."""
_PR_SET_NAME: Final = 15
_PR_SET_PDEATHSIG: Final = 1
_ROUND: Final = "nodes/round"
_END: Final = "nodes/end"


@dataclass(frozen=True)
class Round:
    """All nodes are in this round, counted from 0 in the life of the store."""

    number: int
    why: str = ""
    """Why the one before is over."""


@dataclass(frozen=True)
class NodeEnded:
    """A node's agent has ended; the run cannot go on without it."""

    node: int
    code: int


@dataclass(frozen=True)
class Unreachable:
    """This node cannot reach the store, and so none of the other nodes."""

    why: str


@dataclass(frozen=True)
class _Over:
    """An agent's order to its monitor: end this round."""

    number: int
    why: str


@dataclass(frozen=True)
class _Leave:
    """An agent's order to its monitor: announce that this node ends, then end."""

    code: int
    waits: bool
    """Whether node 0 keeps the store for as long as the others need it."""


Message = Round | NodeEnded | Unreachable


class Monitor:
    """An agent's side of its monitor."""

    def __init__(
        self, node: int, count: int, address: tuple[str, int], timeouts: TimeoutConfig, seconds: float
    ) -> None:
        """Start the process.

        Args:
            node: number of this one.
            count: of the nodes.
            address: host and port of the store; node 0 opens it there.
            timeouts: of the run.
            seconds: for which the store is tried to be reached.
        """
        self._pipe, theirs = Pipe()
        agent = os.getpid()
        self.process = os.fork()
        if not self.process:
            try:
                end_with(agent)
                ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME.encode())
                _Monitoring(node, count, address, timeouts.silence, theirs, agent).run(seconds)
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(0)
        theirs.close()

    def messages(self) -> list[Message]:
        """Those that have come since the last call."""
        found: list[Message] = []
        try:
            while self._pipe.poll():
                found.append(self._pipe.recv())
        except (EOFError, OSError):
            found.append(Unreachable("the monitor of this node has ended"))
        return found

    def end_round(self, number: int, why: str) -> None:
        """Let all nodes start their ranks again, unless this round is over already."""
        self._send(_Over(number, why))

    def leave(self, code: int, cut_short: Callable[[], bool]) -> None:
        """Publish that this node ends with an exit code.

        Waits until they know, but not for long; at node 0, if it has not failed, until they need the store no
        longer (see `_Monitoring._host_until_done`).

        Args:
            code: of this node.
            cut_short: asked whether to wait no longer for that.
        """
        waits = not code and not cut_short()
        self._send(_Leave(code, waits))
        deadline = math.inf if waits else time.monotonic() + 2 * FAREWELL_SECONDS
        with suppress(EOFError, OSError):  # it closes when the monitor has ended
            while time.monotonic() < deadline and not (waits and cut_short()):
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

    def _send(self, order: _Over | _Leave) -> None:
        try:
            self._pipe.send(order)
        except OSError:  # it has ended, which `messages` says
            return


@dataclass
class _Monitoring:
    """The monitor itself."""

    node: int
    count: int
    address: tuple[str, int]
    silence: float
    pipe: Connection
    agent: int
    _round: str = ""
    """The round as the store has it."""
    _reached: float | None = None
    """When the store last answered, by the monotonic clock; None: not yet."""
    _beats: dict[int, tuple[str, float]] = field(default_factory=dict)
    """Node → its last heartbeat, and when it came; at node 0."""
    _silent: set[int] = field(default_factory=set)
    """Nodes that were heard of and are no longer."""
    _others_come_until: float = 0
    """By the monotonic clock: a node that has not come by then has given up, or will find no other."""
    _end: str = "none"
    """Which node has ended, and its exit code, as the store has it."""
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def run(self, seconds: float) -> None:
        """Join the other nodes, then send heartbeats, until the agent ends or the store fails."""
        threading.Thread(target=self._watch, daemon=True).start()
        self._others_come_until = time.monotonic() + seconds
        try:
            store = self._connect(seconds)
            self._register(store)
            self._exchange(store)
            while self._obey(store):
                self._exchange(store)
        except (RuntimeError, TimeoutError, EOFError, OSError) as error:
            self._lose(str(error).partition("\n")[0])

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
            store.set(_ROUND, _encoded(Round(0)))
        self._round = store.get(_ROUND).decode()  # waits for node 0
        self._reached = time.monotonic()
        token = secrets.token_hex(8)
        if store.compare_set(f"nodes/agent/{self.node}", "", token).decode() != token:
            store.set(f"nodes/agent/{self.node}", token)
            self._end_round(store, _decoded(self._round).number, f"node {self.node} has started again")
        else:
            self._say(_decoded(self._round))

    def _exchange(self, store: dist.Store) -> None:
        """Send a heartbeat, and pass the agent the news of the others."""
        store.set(f"nodes/beat/{self.node}", secrets.token_hex(4))
        found, end = (text.decode() for text in store.multi_get([_ROUND, _END]))
        self._reached = time.monotonic()
        if found != self._round:
            self._round = found
            self._say(_decoded(found))
        if end != self._end:
            self._end = end
            self._say(NodeEnded(*map(int, end.split())))
        if self.node == 0:
            self._look_at_nodes(store)

    def _look_at_nodes(self, store: dist.Store) -> None:
        """End the round of a node that has come and fallen silent; once, until it is heard again."""
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

    def _obey(self, store: dist.Store) -> bool:
        """Do what the agent orders until the next heartbeat is due; returns whether to continue."""
        if not self.pipe.poll(BEAT_SECONDS):
            return True
        order = self.pipe.recv()
        if isinstance(order, _Over):
            self._end_round(store, order.number, order.why)
            return True
        self._say_farewell(store, order)
        return False

    def _end_round(self, store: dist.Store, number: int, why: str) -> None:
        """Begin the next round, unless that has been done."""
        current = store.get(_ROUND).decode()
        if _decoded(current).number == number:
            store.compare_set(_ROUND, current, _encoded(Round(number + 1, why)))

    def _say_farewell(self, store: dist.Store, order: _Leave) -> None:
        if order.code:
            store.compare_set(_END, "none", f"{self.node} {order.code}")
        store.set(f"nodes/ended/{self.node}", str(order.code))
        if self.node == 0:
            self._host_until_done(store, math.inf if order.waits else time.monotonic() + FAREWELL_SECONDS)

    def _host_until_done(self, store: dist.Store, deadline: float) -> None:
        """Keep the store until no other node needs it; with a deadline only connected ones count."""
        while (now := time.monotonic()) < deadline:
            come = {*self._beats} - self._silent
            if math.isinf(deadline) and now < self._others_come_until:
                come |= {*range(self.count)} - {*self._beats}
            if all(store.check([f"nodes/ended/{number}"]) for number in come - {0}):
                return
            time.sleep(_LOOK_SECONDS)
            self._exchange(store)

    def _watch(self) -> None:
        """Report that the store does not answer; the main thread may hang in it for ever."""
        while self._reached is None or time.monotonic() - self._reached <= self.silence:
            time.sleep(BEAT_SECONDS)
        self._lose(f"no answer from {self.address[0]}:{self.address[1]} for {self.silence:g} s")

    def _lose(self, why: str) -> None:
        self._say(Unreachable(why))
        os._exit(0)

    def _say(self, message: Message) -> None:
        with self._lock:
            try:
                self.pipe.send(message)
                os.kill(self.agent, WAKE)
            except OSError:  # the agent has ended, and so does this process
                return


def end_with(agent: int) -> None:
    """Let the kernel kill this process when the agent dies, so that none stays behind."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != agent:  # it died before that
        os._exit(EXIT_PEER_FAILED)


def _encoded(current: Round) -> str:
    return json.dumps([current.number, current.why])


def _decoded(text: str) -> Round:
    return Round(*json.loads(text))
