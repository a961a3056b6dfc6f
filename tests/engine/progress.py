"""A fake Progress that records its lines and prints none."""

from collections.abc import Iterator
from contextlib import contextmanager

from engine.provider.resource import Cancelled


class RecordedProgress:
    """A Progress that is also the Task of each name."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        """Log lines."""
        self.status: list[str] = []
        """Status texts of the tasks: `3 of 7 text`, or the text where the total is unknown."""

    def check(self) -> None:
        """Do nothing: it is never interrupted."""

    def log(self, text: str) -> None:
        self.lines.append(text)

    @contextmanager
    def task(self, name: str) -> "Iterator[RecordedProgress]":
        yield self

    def advanced(self, done: int, total: int | None = None, text: str = "") -> None:
        self.status.append(f"{done} of {total} {text}" if total else text)


class InterruptedProgress(RecordedProgress):
    """A Progress after Ctrl-C."""

    def check(self) -> None:
        raise Cancelled
