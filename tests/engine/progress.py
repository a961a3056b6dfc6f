"""Progress for tests: it records its lines, and shows none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.provider.resource import Cancelled


class RecordedProgress:
    """A Progress and its only Task at once."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.status: list[str] = []

    def check(self) -> None:
        """Never interrupted."""

    def log(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, name: str) -> Iterator[RecordedProgress]:
        yield self

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        self.status.append(text)


class InterruptedProgress(RecordedProgress):
    """The user has pressed Ctrl-C."""

    def check(self) -> None:
        raise Cancelled
