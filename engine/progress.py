"""Shows the progress of long tasks: bars on a terminal, lines elsewhere."""

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

LINE_INTERVAL_SECONDS = 15.0
"""Seconds between two lines about the same task in plain output."""


class Task(Protocol):
    """One running piece of work."""

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        """Report `done` of `total` units (no total: unknown) and the current item."""


class Progress(Protocol):
    """Receiver of progress reports; safe to call from several threads."""

    def log(self, text: str) -> None:
        """Print one line that remains."""

    def task(self, name: str) -> AbstractContextManager[Task]:
        """Report a piece of work from its start to its end, with the seconds it took."""


def for_stream(stream: TextIO = sys.stderr) -> Progress:
    """Bars where `stream` is a terminal, lines where it is a file or a pipe."""
    if not stream.isatty():
        return PlainProgress(stream)
    from rich.console import Console

    from engine.bars import RichProgress  # imports rich, which takes 50 ms

    return RichProgress(Console(file=stream))


class PlainProgress:
    """A line at the start, at the end, and every `interval_seconds` between."""

    def __init__(self, stream: TextIO = sys.stderr, interval_seconds: float = LINE_INTERVAL_SECONDS) -> None:
        self._stream = stream
        self._interval_seconds = interval_seconds
        self._lock = threading.Lock()

    def log(self, text: str) -> None:
        with self._lock:
            print(text, file=self._stream, flush=True)

    @contextmanager
    def task(self, name: str) -> Iterator[Task]:
        self.log(f"{name} …")
        started = time.monotonic()
        try:
            yield _PlainTask(self, name, self._interval_seconds)
        except BaseException:
            self.log(f"{name}: stopped after {time.monotonic() - started:.1f} s")
            raise
        self.log(f"{name}: done in {time.monotonic() - started:.1f} s")


class _PlainTask:
    def __init__(self, progress: PlainProgress, name: str, interval_seconds: float) -> None:
        self._progress = progress
        self._name = name
        self._interval_seconds = interval_seconds
        self._next_line = time.monotonic() + interval_seconds

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        if time.monotonic() < self._next_line:
            return
        self._next_line = time.monotonic() + self._interval_seconds
        share = f"{done} of {total} " if total else ""
        self._progress.log(f"{self._name}: {share}{text}".rstrip())
