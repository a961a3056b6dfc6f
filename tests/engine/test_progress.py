"""Progress as plain lines for logs, or as bars where there is a terminal."""

import io
import re
from collections.abc import Callable
from typing import TextIO

import pytest
from rich.console import Console

from engine.bars import RichProgress
from engine.progress import PlainProgress, Progress, for_stream


def test_a_pipe_gets_lines_and_a_terminal_gets_bars() -> None:
    class FakeTerminal(io.StringIO):
        def isatty(self) -> bool:
            return True

    assert isinstance(for_stream(io.StringIO()), PlainProgress)
    assert isinstance(for_stream(FakeTerminal()), RichProgress)


def test_lines_have_start_state_and_end() -> None:
    stream = io.StringIO()
    with PlainProgress(stream, interval_seconds=0).task("build kubelet") as task:
        task.advanced(3, 40, "k8s.io/api")
        task.advanced(0, None, "linking")
    start, share, text, end = stream.getvalue().splitlines()
    assert start == "build kubelet …"
    assert share == "build kubelet: 3 of 40 k8s.io/api"
    assert text == "build kubelet: linking"
    assert re.fullmatch(r"build kubelet: done in \d+\.\d s", end)


def test_lines_do_not_flood_a_log() -> None:
    stream = io.StringIO()
    with PlainProgress(stream, interval_seconds=3600).task("build") as task:
        for number in range(1000):
            task.advanced(number, 1000)
    assert len(stream.getvalue().splitlines()) == 2


@pytest.mark.parametrize("make", [PlainProgress, lambda stream: RichProgress(Console(file=stream))])
def test_a_failure_is_not_shown_as_done(make: Callable[[TextIO], Progress]) -> None:
    stream = io.StringIO()
    with pytest.raises(OSError), make(stream).task("build"):
        raise OSError
    assert "done" not in stream.getvalue()
    assert "✓" not in stream.getvalue()
