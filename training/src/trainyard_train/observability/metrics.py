"""`MetricsLog`: the metrics of a run as JSON lines that rank 0 writes, with a clock that no change of the
host's time affects.
"""

from __future__ import annotations

import errno
import json
import os
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from trainyard_train.contract import FILE, read_metrics
from trainyard_train.observability.rank_log import log_line

Listener = Callable[[dict[str, Any]], None]


class SteadyClock:
    """Unix time of an attempt, as seen from its start: a change of the host's clock does not change it."""

    def __init__(self) -> None:
        self._offset = time.time() - time.monotonic()
        self._known = 0.0

    def now(self) -> float:
        """Unix seconds."""
        return time.monotonic() + self._offset

    def jumped(self) -> float:
        """Seconds by which the host's clock was moved since the last call; 0 for less than one."""
        moved = time.time() - self.now() - self._known
        if abs(moved) < 1:
            return 0.0
        self._known += moved
        return moved


class MetricsLog:
    """Appends to `metrics.jsonl` of a run. Every line names its event, time and attempt.

    A full or failed disk is reported once and costs lines of the log, never the run. A clock that is moved is
    reported, and the lines continue as if it had not been.
    """

    def __init__(self, run_dir: Path, listeners: Sequence[Listener] = ()) -> None:
        """Args: listeners: called with each line, too (see `observability.trackers`)."""
        self._listeners = listeners
        self._path = run_dir / FILE
        self._descriptor: int | None = _open(self._path)
        size = os.fstat(self._descriptor).st_size
        self._torn = size > 0 and os.pread(self._descriptor, 1, size - 1) != b"\n"
        earlier = read_metrics(self._path)
        self.attempt = 1 + max((line["attempt"] for line in earlier), default=0)
        self._silenced = False
        self._clock = SteadyClock()

    def close(self) -> None:
        """Close the log and the listeners; a second call does nothing."""
        descriptor, self._descriptor = self._descriptor, None
        if descriptor is None:
            return
        os.close(descriptor)
        for listener in self._listeners:
            if close := getattr(listener, "close", None):
                close()

    def write(self, event: str, **values: object) -> None:
        """Append one line; events other than `step` are waited for until they are on the disk."""
        if self._descriptor is None:
            return
        if moved := self._clock.jumped():
            log_line(
                f"this host's clock jumped by {moved:+.1f} s; check its time service."
                " Times in the metrics do not include the jump"
            )
            self._append("clock", step=values.get("step"), moved_seconds=round(moved, 1))
        self._append(event, **values)

    def _append(self, event: str, **values: object) -> None:
        line: dict[str, Any] = {
            "time": round(self._clock.now(), 3),
            "event": event,
            "attempt": self.attempt,
            **values,
        }
        for listener in self._listeners:
            listener(line)
        if self._descriptor is None:
            return
        try:
            self._put(self._descriptor, json.dumps(line).encode() + b"\n")
            if event != "step":
                os.fsync(self._descriptor)
        except OSError as error:
            if not self._silenced:
                log_line(f"{self._path}: metrics are no longer written: {error.strerror}")
            self._silenced = True

    def _put(self, descriptor: int, data: bytes) -> None:
        """Write a line, after the end of one that a kill or a full disk cut short."""
        if self._torn:
            data = b"\n" + data
        written = os.write(descriptor, data)
        if written < len(data):
            self._torn = data[written - 1 : written] != b"\n"
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._torn = False


def _open(path: Path) -> int:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        return os.open(path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
    except OSError as error:
        raise OSError(
            f"run_dir: got {path.parent}: {error.strerror}; allowed: a folder that this user may write to,"
            " on a disk with free space; saved checkpoints remain"
        ) from error
