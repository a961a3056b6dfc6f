"""Shows the progress of long tasks as bars on a terminal."""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, SpinnerColumn, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars


class RichProgress:
    """One bar per running task; what has ended remains as a line above."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._bars: Bars | None = None
        self._running = 0

    def log(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    @contextmanager
    def task(self, name: str) -> "Iterator[_RichTask]":
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
