"""Starts processes for the language host, streams their output, and ends them with the host."""

import queue
import signal
import subprocess
import threading
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import IO, Literal

from engine.tied import end, start_tied

Stream = Literal["stdout", "stderr"]
CHUNK_BYTES = 64 * 1024


class Children:
    """Starts processes and ends them all: on `stop`, and should the host be killed.

    A separate session keeps the engine's interrupt of the host from printing a traceback in the program.
    """

    def __init__(self) -> None:
        self._running: set[subprocess.Popen[bytes]] = set()
        self._lock = threading.Lock()
        self.stopped = False
        """Whether `stop` was called: output of the processes after that is no error."""

    def run(self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> int:
        """Run to the end with the host's own stdout and stderr, which the engine shows; the exit code."""
        with self._lock:
            process = start_tied(command, signal.SIGKILL, cwd=cwd, env=environment, start_new_session=True)
            self._running.add(process)
        try:
            return process.wait()
        finally:
            self._running.discard(process)

    def start(
        self, command: Sequence[str], cwd: Path, environment: Mapping[str, str]
    ) -> subprocess.Popen[bytes]:
        """Start with its stdout and stderr piped, for `stream`."""
        with self._lock:
            process = start_tied(
                command,
                signal.SIGKILL,
                cwd=cwd,
                env=environment,
                start_new_session=True,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
            self._running.add(process)
        return process

    def stream(self, process: subprocess.Popen[bytes]) -> Iterator[tuple[Stream, bytes]]:
        """Yield the process's output as it is written; at the end both streams are closed."""
        chunks: queue.SimpleQueue[tuple[Stream, bytes]] = queue.SimpleQueue()

        def pump(name: Stream, source: IO[bytes]) -> None:
            while chunk := source.read1(CHUNK_BYTES):  # type: ignore[attr-defined]
                chunks.put((name, chunk))
            chunks.put((name, b""))

        assert process.stdout is not None and process.stderr is not None
        threading.Thread(target=pump, args=("stdout", process.stdout), daemon=True).start()
        threading.Thread(target=pump, args=("stderr", process.stderr), daemon=True).start()
        open_streams = 2
        try:
            while open_streams:
                name, chunk = chunks.get()
                if chunk:
                    yield name, chunk
                else:
                    open_streams -= 1
        finally:
            self._running.discard(process)

    def stop(self) -> None:
        """End all, by SIGTERM first: a program may have child processes."""
        with self._lock:
            self.stopped = True
            running = list(self._running)
        for process in running:
            end(process)
