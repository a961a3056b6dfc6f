"""Watching the ranks: one that is gone, one that is slow, and a step that does not end.

A collective would wait for its timeout, which must allow for the slowest step. A rank that lives says so
every second from a thread of its own, however long its steps are; who is silent for too long is gone.
Rank 0 listens to all, the others listen to rank 0, and hear of the rest by the connections it drops.

With its sign of life a rank says how long its own part of a step takes, before it waits for others: by that
rank 0 finds a straggler. And it says if a step lasts too long: then all ranks write down where they are.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import count
from pathlib import Path
from statistics import median
from typing import Any, Final

import torch.distributed as dist

from training.mesh import Mesh
from training.preemption import EXIT_LOST_RANK

_BEAT_SECONDS: Final = 1.0
_SLOW: Final = 2.0
"""A straggler's own part of a step takes so many times as long as the others' …"""
_NOTICEABLE_SECONDS: Final = 0.01
"""… and so much longer."""
_SMOOTH: Final = 0.1
STACKS: Final = "stacks"
Tell = Callable[..., None]
"""Called with an event and its values."""


@dataclass(frozen=True)
class Sign:
    """What a rank says of itself with each beat."""

    beat: int = 0
    node: str = ""
    own_seconds: float = 0.0
    """Of a step, smoothed: from its begin until this rank has its loss; with a GPU, until all is queued."""
    stalled: int = 0
    """The step that does not end; 0 if all is well."""

    def encode(self) -> str:
        """As text."""
        return json.dumps(asdict(self))

    @staticmethod
    def decode(text: bytes) -> Sign:
        """Read what `encode` wrote."""
        values: dict[str, Any] = json.loads(text)
        return Sign(**values)


def _stacks() -> str:
    """Where each thread of this process is, the main one first.

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


def stragglers(signs: Mapping[int, Sign]) -> list[int]:
    """The ranks that keep the others waiting; none where there is nobody to compare with."""
    slow = []
    for rank, sign in signs.items():
        others = [
            other.own_seconds for number, other in signs.items() if number != rank and other.own_seconds
        ]
        if others and sign.own_seconds > max(_SLOW * median(others), median(others) + _NOTICEABLE_SECONDS):
            slow.append(rank)
    return slow


@dataclass
class Pulse:
    """Beats for this rank and listens for others; ends the process when one of them is gone."""

    mesh: Mesh
    silence_seconds: float
    stall_seconds: float
    folder: Path
    """Where stacks are written; all ranks share it."""
    tell: Tell
    clock: Callable[[], float] = time.monotonic
    _heard: dict[int, float] = field(default_factory=dict)
    _signs: dict[int, Sign] = field(default_factory=dict)
    _slow: set[int] = field(default_factory=set)
    _step: tuple[int, float] | None = None
    """The one under way, and when it began."""
    _own_seconds: float = 0
    _written: int = 0
    """The stalled step for which this rank wrote its stacks."""

    def start(self) -> None:
        """Begin, in threads, as soon as all ranks have joined: each must follow within `silence_seconds`."""
        self.listen_to(range(1, self.mesh.world_size) if self.mesh.leads else [0])
        if self.mesh.world_size > 1:
            for work in (self._beat, self._listen):
                threading.Thread(target=work, name="pulse", daemon=True).start()

    def listen_to(self, ranks: Iterable[int]) -> None:
        """Expect signs of life from these."""
        self._heard = dict.fromkeys(ranks, self.clock())

    def begin_step(self, step: int) -> None:
        """A step begins, counted from 1."""
        self._step = (step, self.clock())

    def own_part_done(self) -> None:
        """From here on this step needs the others."""
        if self._step:
            seconds = self.clock() - self._step[1]
            self._own_seconds += (seconds - self._own_seconds) * (_SMOOTH if self._own_seconds else 1)

    def end_step(self) -> None:
        """The step is done; what follows it may take its time."""
        self._step = None

    def silent(self) -> list[int]:
        """The ranks that have not been heard of for too long."""
        now = self.clock()
        return [rank for rank, heard in self._heard.items() if now - heard > self.silence_seconds]

    def _beat(self) -> None:
        """Exchange beats. This thread may hang in the store or lose it; `_listen` will find out."""
        store = self.mesh.store.clone()  # the main thread may block the first connection for long
        with suppress(RuntimeError):
            for beat in count(1):
                self.exchange(store, beat)
                time.sleep(_BEAT_SECONDS)

    def exchange(self, store: dist.Store, beat: int) -> None:
        """Say how this rank is, hear of the others, and say what is wrong; a thread does it every second.

        Raises:
            RuntimeError: the store is gone.
        """
        own = self._sign(beat)
        store.set(f"pulse/{self.mesh.rank}", own.encode())
        found = store.multi_get([f"pulse/{rank}" for rank in self._heard])
        for rank, text in zip(self._heard, found, strict=True):
            self._hear(rank, Sign.decode(text))
        self._watch(own)

    def _sign(self, beat: int) -> Sign:
        stalled = self._stalled()
        if self.mesh.leads:  # who listens to rank 0 hears of any
            stalled = max([stalled, *(sign.stalled for sign in self._signs.values())])
        return Sign(beat, self.mesh.node, self._own_seconds, stalled)

    def _stalled(self) -> int:
        under_way = self._step
        return under_way[0] if under_way and self.clock() - under_way[1] > self.stall_seconds else 0

    def _hear(self, rank: int, sign: Sign) -> None:
        before = self._signs.get(rank)
        if before is None or before.beat != sign.beat:
            self._heard[rank] = self.clock()
        self._signs[rank] = sign

    def _watch(self, own: Sign) -> None:
        """Say what is wrong, each once."""
        signs = {self.mesh.rank: own, **self._signs}
        stalled = max(sign.stalled for sign in signs.values())
        if stalled > self._written:
            self._written = stalled
            self._write_stacks(stalled)
        if not self.mesh.leads:
            return
        slow = set(stragglers(signs))
        for rank in slow - self._slow:
            seconds = round(signs[rank].own_seconds, 4)
            usual = round(median(sign.own_seconds for sign in signs.values()), 4)
            self.tell("straggler", rank=rank, node=signs[rank].node, seconds=seconds, median_seconds=usual)
        self._slow = slow

    def _write_stacks(self, step: int) -> None:
        """Write where each thread of this process is."""
        folder = self.folder / STACKS
        path = folder / f"step-{step:08d}-rank-{self.mesh.rank:05d}.txt"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            path.write_text(_stacks())
        except OSError as error:
            sys.stderr.write(f"training: {path}: {error.strerror}\n")
        if self.mesh.leads:
            self.tell("stalled", seconds=self.stall_seconds, stacks=str(folder))

    def _listen(self) -> None:
        while not (silent := self.silent()):
            time.sleep(_BEAT_SECONDS / 2)
        ranks = ", ".join(map(str, silent))
        text = f"no sign of rank {ranks} for {self.silence_seconds:g} s"
        self.tell("failed", error=text)
        sys.stderr.write(f"training: {text}: leaving, so that the run can start again without delay\n")
        sys.stderr.flush()
        os._exit(EXIT_LOST_RANK)  # the main thread may be inside a collective that will never return
