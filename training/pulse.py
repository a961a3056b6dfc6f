"""Noticing that a rank is gone when its node vanished without closing a connection.

A collective would wait for its timeout, which must allow for the slowest step. A rank that lives says so
every second from a thread of its own, however long its steps are; who is silent for too long is gone.
Rank 0 listens to all, the others listen to rank 0, and hear of the rest by the connections it drops.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from training.mesh import Mesh
from training.preemption import EXIT_FAILED

_BEAT_SECONDS: Final = 1.0


@dataclass
class Pulse:
    """Beats for this rank and listens for others; ends the process when one of them is gone."""

    mesh: Mesh
    silence_seconds: float
    on_silence: Callable[[str], None]
    """Called with a sentence, just before the process ends."""
    _heard: dict[int, float] = field(default_factory=dict)

    def start(self) -> None:
        """Begin, in threads, as soon as all ranks have joined: each must follow within `silence_seconds`."""
        others = range(1, self.mesh.world_size) if self.mesh.leads else [0]
        self._heard = dict.fromkeys(others, time.monotonic())
        if self.mesh.world_size > 1:
            for work in (self._beat, self._listen):
                threading.Thread(target=work, name="pulse", daemon=True).start()

    def silent(self) -> list[int]:
        """The ranks that have not been heard of for too long."""
        now = time.monotonic()
        return [rank for rank, heard in self._heard.items() if now - heard > self.silence_seconds]

    def _beat(self) -> None:
        """Exchange beats. This thread may hang in the store or lose it; `_listen` will find out."""
        store = self.mesh.store.clone()  # the main thread may block the first connection for long
        counts: dict[int, bytes] = {}
        beat = 0
        while True:
            beat += 1
            try:
                store.set(f"pulse/{self.mesh.rank}", str(beat))
                found = store.multi_get([f"pulse/{rank}" for rank in self._heard])
            except RuntimeError:
                return
            for rank, count in zip(self._heard, found, strict=True):
                if counts.get(rank) != count:
                    counts[rank] = count
                    self._heard[rank] = time.monotonic()
            time.sleep(_BEAT_SECONDS)

    def _listen(self) -> None:
        while not (silent := self.silent()):
            time.sleep(_BEAT_SECONDS / 2)
        ranks = ", ".join(map(str, silent))
        text = f"no sign of rank {ranks} for {self.silence_seconds:g} s"
        self.on_silence(text)
        sys.stderr.write(f"training: {text}: leaving, so that the run can start again without delay\n")
        sys.stderr.flush()
        os._exit(EXIT_FAILED)  # the main thread may be inside a collective that will never return
