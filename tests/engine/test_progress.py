"""Progress as plain lines for logs, and as bars for terminals."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TextIO

import pytest
from rich.console import Console

from engine.progress import PlainProgress, Progress, RichProgress, for_stream


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


def test_bars_leave_one_line_for_each_task_that_ended() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=False, width=120))
    with progress.task("one") as task, progress.task("two"):
        task.advanced(1, 2, "half")
    progress.log("all done")
    lines = [line.split()[:2] for line in stream.getvalue().splitlines() if line]
    assert lines == [["✓", "two"], ["✓", "one"], ["all", "done"]]


def test_text_that_looks_like_markup_is_printed_unchanged() -> None:
    stream = io.StringIO()
    progress = RichProgress(Console(file=stream, force_terminal=True, width=120))
    with progress.task("build [/one]") as task:
        task.advanced(1, 2, "reading [/src/pair.cc:545]")
        progress.log("error [/src/pair.cc:545]")
    assert "error [/src/pair.cc:545]" in stream.getvalue()
    assert "build [/one]" in stream.getvalue()
