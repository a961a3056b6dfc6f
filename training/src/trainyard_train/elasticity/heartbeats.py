"""Exchanges heartbeats between ranks: ends the process if a peer is dead or an operation hangs, writes stacks
on a stall, reports stragglers.

A separate thread of each rank sends a heartbeat every second, however long a step is: rank 0 receives all
heartbeats, the others those of rank 0. What follows: docs/dev/training-design.md, "Failures and hangs".
"""

from __future__ import annotations

import json
import math
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import count
from pathlib import Path
from statistics import median, median_low
from threading import Thread
from typing import Final, Literal

import torch
import torch.distributed as dist

from trainyard_train.contract import EXIT_FAILED, EXIT_PEER_FAILED
from trainyard_train.elasticity.config import TimeoutConfig
from trainyard_train.elasticity.rank_status import RankStatus
from trainyard_train.elasticity.stacks import answer_with_stacks
from trainyard_train.observability.rank_log import log_line
from trainyard_train.parallelism.mesh import Mesh

_BEAT_SECONDS: Final = 1.0
_SLOW: Final = 2.0
"""Factor: a straggler's own part of a step takes at least this many times the median."""
_NOTICEABLE_SECONDS: Final = 0.01
"""Seconds by which a straggler's own part of a step must exceed the median too."""
_SMOOTH: Final = 0.1
_DISK_SECONDS: Final = 3.0
"""Maximum seconds to write stacks and the final event: the disk may be what hangs."""
_JOIN_SECONDS: Final = 3.0
"""Maximum seconds to wait for the threads' last heartbeat: the store may be what hangs."""
STACKS: Final = "stacks"
RecordEvent = Callable[..., None]
"""Records an event with its values."""
Kind = Literal["start", "loading", "step", "evaluation", "save"]
"""Kind of work of a rank; `evaluation`: one batch of it, `save`: waiting for a save to end."""


@dataclass(frozen=True)
class Work:
    """Work of a rank, and its time limits."""

    name: str
    since: float
    stall_seconds: float
    """Seconds after which all ranks write their stacks."""
    end_seconds: float
    """Seconds after which the process ends."""


@dataclass(frozen=True)
class Heartbeat:
    """Report of a rank about itself, sent once a second."""

    beat: int = 0
    node: str = ""
    own_seconds: float = 0.0
    """Smoothed seconds from the start of a step until this rank has its loss; with a GPU, until all is
    queued."""
    stalled: str = ""
    """Name of the work that has stalled; empty if there is none."""


def _stacks() -> str:
    """Stacks of all threads of this process, the main thread first.

    Without the lines of the source, which may lie on the disk that hangs; and all of them, while
    `faulthandler` leaves out the oldest beyond a hundred threads, the main one among them.
    """
    frames = sys._current_frames()
    main = threading.main_thread().ident
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    parts = []
    for ident in sorted(frames, key=lambda ident: ident != main):
        calls = [
            f'  File "{frame.f_code.co_filename}", line {line}, in {frame.f_code.co_name}'
            for frame, line in traceback.walk_stack(frames[ident])
        ]
        name = names.get(ident, "of a library")
        parts.append("\n".join([f"Thread {name}, most recent call first:", *calls, ""]))
    return "\n".join(parts)


def _flight_record() -> bytes:
    """The last collectives of this process, as `torch.distributed.flight_recorder.fr_trace` reads them."""
    if not dist.is_initialized():
        return b""
    recorder = torch._C._distributed_c10d
    dump = recorder._dump_nccl_trace if dist.get_backend() == "nccl" else recorder._dump_fr_trace  # type: ignore[attr-defined]
    return bytes(dump())


def stragglers(heartbeats: Mapping[int, Heartbeat]) -> list[int]:
    """Ranks that keep the others waiting; empty if there are too few to compare."""
    usual = median_low([each.own_seconds for each in heartbeats.values() if each.own_seconds] or [math.inf])
    limit = max(_SLOW * usual, usual + _NOTICEABLE_SECONDS)
    return [rank for rank, each in heartbeats.items() if each.own_seconds > limit]


@dataclass
class Heartbeats:
    """Sends this rank's heartbeats and receives the others'; ends the process when one of them fails."""

    mesh: Mesh
    timeouts: TimeoutConfig
    folder: Path
    """Folder of the stacks, which all ranks share."""
    record: RecordEvent
    clock: Callable[[], float] = time.monotonic
    status: RankStatus = field(default_factory=RankStatus.from_environment)
    _heard: dict[int, float] = field(default_factory=dict)
    _latest: dict[int, Heartbeat] = field(default_factory=dict)
    _slow: set[int] = field(default_factory=set)
    _work: Work | None = None
    """Work that this rank is doing."""
    _longest: dict[Kind, float] = field(default_factory=dict)
    """Maximum seconds that each kind of work has taken in this process."""
    _own_seconds: float = 0
    _written: set[str] = field(default_factory=set)
    """Stalled work for which this rank wrote its stacks."""
    _late: tuple[Work, int] | None = None
    """Work that has stalled, and the number of heartbeats since."""
    _stopped: threading.Event = field(default_factory=threading.Event)
    _threads: list[Thread] = field(default_factory=list)

    def start(self) -> None:
        """Begin, in threads, as soon as all ranks have joined: each must follow in time."""
        answer_with_stacks()
        self.listen_to(range(1, self.mesh.world_size) if self.mesh.is_rank0 else [0])
        alone = self.mesh.world_size == 1 or self.status.has_agent
        connection = self.mesh.with_own_connection("heartbeats")  # the main thread may block the first one
        works: list[Callable[[], None]] = [
            partial(self._beat, connection.store),
            *([] if alone else [self._listen]),
        ]
        self._threads = [Thread(target=work, name="heartbeats", daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        """Stop sending heartbeats; the others will find this rank silent.

        A thread that is in the store when Python ends aborts the process, so each gets time to come back.
        """
        self._stopped.set()
        for thread in self._threads:
            thread.join(_JOIN_SECONDS)

    def listen_to(self, ranks: Iterable[int]) -> None:
        """Expect heartbeats from these ranks from now on."""
        self._heard = dict.fromkeys(ranks, self.clock())

    @contextmanager
    def busy(self, kind: Kind, step: int = 0) -> Iterator[None]:
        """Apply the time limits of a kind of work to the block.

        Args:
            kind: kind of the work.
            step: step that it belongs to, counted from 1; 0: none.
        """
        name = f"{kind}-{step:08d}" if step else kind
        self._work = work = Work(name, self.clock(), *self._limits(kind))
        try:
            yield
        finally:
            self._work = None
        if kind == "step" and kind not in self._longest:
            self.listen_to(self._heard)  # a rank may be silent while it loads, without a failure
        self._longest[kind] = max(self._longest.get(kind, 0), self.clock() - work.since)

    def _limits(self, kind: Kind) -> tuple[float, float]:
        """Seconds until stacks are written, and until the process ends."""
        save = self.timeouts.save
        if kind == "save":  # the waiting thread has a timeout
            return save / 2, math.inf
        if kind in {"start", "loading"}:
            return save / 2, self.timeouts.start
        usual = self.timeouts.collective
        if kind not in self._longest:  # the first step compiles, which takes minutes
            return self.timeouts.stall, max(usual, self.timeouts.start)
        before = self._longest[kind]  # a limit above the longest so far: slow is not hung
        return max(self.timeouts.stall, 2 * before), max(usual, 10 * before)

    def own_part_done(self) -> None:
        """Note that this rank's own part of the step is done: from here on it waits for others."""
        if self._work:
            seconds = self.clock() - self._work.since
            self._own_seconds += (seconds - self._own_seconds) * (_SMOOTH if self._own_seconds else 1)

    def silent(self) -> list[int]:
        """The ranks that have not been heard of for too long."""
        now = self.clock()
        return [rank for rank, heard in self._heard.items() if now - heard > self._silence]

    @property
    def _silence(self) -> float:
        """Seconds without a heartbeat after which a rank has failed.

        Once this one's first step is done, which takes all ranks, none of them starts or loads any more.
        """
        return self.timeouts.silence if "step" in self._longest else self.timeouts.start

    def _beat(self, store: dist.Store) -> None:
        """Exchange heartbeats. This thread may hang in the store or be disconnected: `_listen` sees it."""
        with suppress(RuntimeError):
            for beat in count(1):
                self.exchange(store, beat)
                if self._stopped.wait(_BEAT_SECONDS):
                    return

    def exchange(self, store: dist.Store, beat: int) -> None:
        """Send this rank's heartbeat, read the others', and report failures; a thread does it every second.

        Raises:
            RuntimeError: the store is unreachable.
        """
        own = self._own_heartbeat(beat)
        if self._heard:
            store.set(f"heartbeat/{self.mesh.rank}", json.dumps(asdict(own)))
            found = store.multi_get([f"heartbeat/{rank}" for rank in self._heard])
            for rank, text in zip(self._heard, found, strict=True):
                self._receive(rank, Heartbeat(**json.loads(text)))
        self._watch(own)
        self.status.stalled = bool(self._stalled())
        self._end_if_hung()

    def _own_heartbeat(self, beat: int) -> Heartbeat:
        work = self._stalled()
        stalled = work.name if work else ""
        if self.mesh.is_rank0:  # all ranks read rank 0's heartbeat
            stalled = max([stalled, *(each.stalled for each in self._latest.values())])
        return Heartbeat(beat, self.mesh.node, self._own_seconds, stalled)

    def _stalled(self) -> Work | None:
        work = self._work
        return work if work and self.clock() - work.since > work.stall_seconds else None

    def _receive(self, rank: int, heartbeat: Heartbeat) -> None:
        before = self._latest.get(rank)
        if before is None or before.beat != heartbeat.beat:
            self._heard[rank] = self.clock()
        self._latest[rank] = heartbeat

    def _watch(self, own: Heartbeat) -> None:
        """Write stacks on a stall, and report stragglers; each once."""
        heartbeats = {self.mesh.rank: own, **self._latest}
        stalled = max(each.stalled for each in heartbeats.values())
        if stalled and stalled not in self._written:
            self._written.add(stalled)
            self._write_stacks(stalled)
        if not self.mesh.is_rank0:
            return
        slow = set(stragglers(heartbeats))
        for rank in slow - self._slow:
            seconds = round(heartbeats[rank].own_seconds, 4)
            usual = round(median(each.own_seconds for each in heartbeats.values()), 4)
            node = heartbeats[rank].node
            self.record("straggler", rank=rank, node=node, seconds=seconds, median_seconds=usual)
        self._slow = slow

    def _write_stacks(self, work: str) -> None:
        """Write the stacks of all threads and the last collectives of this process."""
        path = self.folder / STACKS / f"{work}-rank-{self.mesh.rank:05d}.txt"
        stacks, flight = _stacks(), _flight_record()

        def write() -> None:
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(stacks)
                if flight:
                    path.with_name(f"{work}-flight-{self.mesh.rank}").write_bytes(flight)
            except OSError as error:
                log_line(f"{path}: {error.strerror}")
            if self.mesh.is_rank0:
                self.record("stalled", work=work, stacks=str(path.parent))

        if not _write_in_time(write):
            log_line(f"{path}: not written within {_DISK_SECONDS:g} s; the stacks of all threads:\n{stacks}")

    def _end_if_hung(self) -> None:
        """End the process if its work lasts too long.

        That is counted in beats: a process that was stopped for a while (Ctrl-Z) has not hung.
        """
        work = self._stalled()
        if work is None:
            self._late = None
            return
        beats = self._late[1] + 1 if self._late and self._late[0] is work else 0
        self._late = work, beats
        if beats and beats * _BEAT_SECONDS >= work.end_seconds - work.stall_seconds:
            waited = self.clock() - work.since
            self._exit_now(
                f"{work.name} has not ended after {waited:.0f} s: {self.folder / STACKS} has the stacks of"
                " all threads; if it is only slow, raise timeouts.collective (for a step) or timeouts.save",
                # Nothing shows which rank is at fault: this one may be waiting for another.
                EXIT_FAILED if self.mesh.world_size == 1 else EXIT_PEER_FAILED,
            )

    def _listen(self) -> None:
        while not (silent := self.silent()):
            if self._stopped.wait(_BEAT_SECONDS / 2):
                return
        ranks = ", ".join(map(str, silent))
        text = f"no heartbeat from rank {ranks} for {self._silence:g} s"
        self._exit_now(text, EXIT_PEER_FAILED, ": exiting, so that the run can restart without delay")

    def _exit_now(self, text: str, code: int, what_now: str = "") -> None:
        log_line(f"{text}{what_now}")
        _write_in_time(lambda: self.record("failed", error=text))
        os._exit(code)  # the main thread may be inside a call that will never return


def _write_in_time(write: Callable[[], object]) -> bool:
    """Write in a thread; returns whether it ended within `_DISK_SECONDS`, since a disk may hang."""
    writer = Thread(target=write, name="last words", daemon=True)
    writer.start()
    writer.join(_DISK_SECONDS)
    return not writer.is_alive()
