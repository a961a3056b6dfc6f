"""Runs and interrupts the programs that build artifacts, and reports failures with a next step."""

import errno
import os
import re
import signal
import subprocess
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

from infra.errors import ExitCode, HostError, Problem, TrainyardError

STOP_SECONDS = 10.0
"""Seconds between SIGTERM and SIGKILL."""

_NO_NETWORK = re.compile(
    "no such host|could not resolve|temporary failure (in name )?resol|network is unreachable"
    "|connection refused|i/o timeout|tls handshake timeout|failed to fetch|dns error|error sending request"
    "|failed to connect",
    re.IGNORECASE,
)


class InterruptedWorkError(Exception):
    """Other work has failed, or the user has interrupted: no new program is started."""


class ProcessRunner:
    """Runs programs, each in a separate process group, so that an interrupt can end all that they started.

    Leaving it as a context ends every program that still runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._live: set[subprocess.Popen[str]] = set()
        self._stopped = False

    def __enter__(self) -> Self:
        self._stopped = False
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._stopped = True
            live = list(self._live)
        for process in live:
            self._end(process)

    def run(
        self,
        command: Sequence[str | Path],
        *,
        what: str,
        cwd: Path | None = None,
        environ: Mapping[str, str] | None = None,
        on_line: Callable[[str], None] = lambda _: None,
    ) -> None:
        """Run to the end, giving each line of output to `on_line`; raise TrainyardError if it fails.

        `what` names the work in the error; where the machine is the cause (no network, no space), it is a
        HostError.
        """
        tail: deque[str] = deque(maxlen=12)
        process = self._start(command, cwd, environ)
        try:
            for line in process.stdout or ():
                tail.append(line.rstrip())
                on_line(line.rstrip())
            code = process.wait()
        finally:
            self._end(process)
        if code != 0:
            raise failure(what, "\n".join(tail) or f"exit code {code}")

    def _start(
        self, command: Sequence[str | Path], cwd: Path | None, environ: Mapping[str, str] | None
    ) -> subprocess.Popen[str]:
        with self._lock:
            if self._stopped:
                raise InterruptedWorkError
            process = subprocess.Popen(
                [str(part) for part in command],
                cwd=cwd,
                env={**os.environ, **(environ or {})},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
                start_new_session=True,
            )
            self._live.add(process)
            return process

    def _end(self, process: subprocess.Popen[str]) -> None:
        if process.poll() is None:
            _signal_group(process, signal.SIGTERM)
            try:
                process.wait(STOP_SECONDS)
            except subprocess.TimeoutExpired:
                _signal_group(process, signal.SIGKILL)
                process.wait()
        with self._lock:
            self._live.discard(process)


def failure(what: str, output: str) -> TrainyardError:
    """Return why `what` failed, from its output."""
    if os.strerror(errno.ENOSPC).lower() in output.lower():
        return HostError([no_space(what, output.splitlines()[-1])])
    if _NO_NETWORK.search(output):
        allowed = "a host that reaches its package registries, directly or through its configured proxies"
        fix = "check the network (GOPROXY, settings of uv and apt), then run again: finished parts are reused"
        return HostError([Problem(what, output, allowed, fix)])
    fix = "see the lines above for the cause, then run again: finished parts are reused"
    return TrainyardError([Problem(what, output, "exit code 0", fix)], ExitCode.FAILED)


def no_space(what: str, got: str) -> Problem:
    """Return the error for a full disk."""
    return Problem(
        path=what,
        got=got,
        allowed="enough free space for the remaining artifacts (see `trainyard doctor`)",
        fix="free some, or set TRAINYARD_CACHE to a larger disk, then run again: finished parts are reused",
    )


def _signal_group(process: subprocess.Popen[str], number: signal.Signals) -> None:
    try:
        os.killpg(process.pid, number)
    except ProcessLookupError:
        return
