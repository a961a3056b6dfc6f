"""Runs one `pulumi` command, and passes its output on line by line. The first interrupt ends it gracefully,
the second at once.
"""

import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

from engine.tied import start_tied

MAX_STDERR_LINES = 50


@dataclass(frozen=True)
class ProcessResult:
    """Result of a `pulumi` process."""

    code: int
    errors: str
    """Last lines of stderr."""
    interrupted: bool


class EngineProcess:
    """Starts the engine in a separate session, so that a terminal's Ctrl-C reaches us first.

    Should we be killed, it is interrupted too, and ends as after Ctrl-C (`engine.tied`).
    """

    def __init__(
        self, folder: Path, environment: Mapping[str, str], on_interrupt: Callable[[], None]
    ) -> None:
        self._folder = folder
        self._environment = environment
        self._on_interrupt = on_interrupt
        self._interrupts = 0

    def run(self, arguments: Sequence[str], on_line: Callable[[str], None]) -> ProcessResult:
        """Run to the end, each line of stdout given to `on_line` as it comes."""
        process = start_tied(
            ["pulumi", "--non-interactive", *arguments],
            signal.SIGINT,
            cwd=self._folder,
            env=self._environment,
            start_new_session=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stdout is not None and process.stderr is not None
        errors: deque[str] = deque(maxlen=MAX_STDERR_LINES)
        reader = threading.Thread(target=_drain, args=(process.stderr, errors), daemon=True)
        reader.start()
        with self._interruptible(process):
            for line in process.stdout:
                on_line(line)
            code = process.wait()
        reader.join(1.0)
        return ProcessResult(code, "".join(errors).strip(), self._interrupts > 0)

    @contextmanager
    def _interruptible(self, process: subprocess.Popen[str]) -> Iterator[None]:
        if threading.current_thread() is not threading.main_thread():
            yield
            return

        def interrupt(_number: int, _frame: FrameType | None) -> None:
            self._interrupts += 1
            if self._interrupts == 1:
                process.send_signal(signal.SIGINT)
                self._on_interrupt()
            else:
                process.kill()

        before = {number: signal.signal(number, interrupt) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _drain(stream: IO[str], into: deque[str]) -> None:
    into.extend(stream)
