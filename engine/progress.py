"""Shows the progress of long tasks: bars on a terminal, lines elsewhere."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol, TextIO

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars

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
    return RichProgress(Console(file=stream)) if stream.isatty() else PlainProgress(stream)


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


class RichProgress:
    """One bar per running task; what has ended remains as a line above."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = console or Console(stderr=True)
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._running = 0

    def log(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def task(self, name: str) -> Iterator[Task]:
        started = time.monotonic()
        bars = self._opened()
        bar = bars.add_task(name, total=None, text="")
        mark = "[red]✗[/]"
        try:
            yield _RichTask(bars, bar)
            mark = "[green]✓[/]"
        finally:
            bars.remove_task(bar)
            seconds = f"[dim]{time.monotonic() - started:.1f} s[/]"
            self._console.print(f"{mark} {escape(name)} {seconds}", highlight=False)
            self._closed()

    def _opened(self) -> Bars:
        with self._lock:
            self._running += 1
            if self._bars is None:
                columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), BarColumn(24))
                detail = TextColumn("{task.fields[text]}", style="dim", markup=False)
                self._bars = Bars(
                    *columns, TimeElapsedColumn(), detail, console=self._console, transient=True
                )
                self._bars.start()
            return self._bars

    def _closed(self) -> None:
        with self._lock:
            self._running -= 1
            if self._running == 0 and self._bars is not None:
                self._bars.stop()
                self._bars = None


class _RichTask:
    def __init__(self, bars: Bars, bar: TaskID) -> None:
        self._bars = bars
        self._bar = bar

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        share = f"{done}/{total} {text}" if total else text
        self._bars.update(self._bar, completed=done, total=total, text=share[-60:])
