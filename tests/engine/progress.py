"""A fake Progress that records its lines and prints none."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from engine.provider.resource import Cancelled


class RecordedProgress:
    """A Progress that is also its only Task."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.status: list[str] = []

    def check(self) -> None:
        """Do nothing: it is never interrupted."""

    def log(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, name: str) -> Iterator[RecordedProgress]:
        yield self

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        self.status.append(text)


class InterruptedProgress(RecordedProgress):
    """A Progress after Ctrl-C."""

    def check(self) -> None:
        raise Cancelled
