"""Progress as bars on a terminal."""

import io

from rich.console import Console

from engine.bars import RichProgress


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
