"""Programs, their output and ends, conditions to wait for, and free ports, for tests that start processes."""

import secrets
import socket
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import psutil

TIMEOUT_SECONDS: Final = 180.0
"""Timeout that is long enough for a busy host; it costs nothing if the event comes at once."""
_PORTS: Final = range(20_000, 30_000)
"""Ports below those that Linux assigns to connections, which other tests open meanwhile."""


def wait_for(condition: Callable[[], object], output: Callable[[], str] = lambda: "") -> None:
    """Wait until the condition holds; if it never does, the error has the text of `output`."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited for {TIMEOUT_SECONDS:g} s: {output()}"
        time.sleep(0.02)


def capture(command: Sequence[str | Path], **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a program to its end with its output as text; it may fail, unless `check` is true."""
    return subprocess.run(command, capture_output=True, text=True, **options)


def free_port() -> int:
    """Return a port of this host for a server that cannot choose one itself."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("", port))
            return port


def kill(process: psutil.Process, only: str | None = None) -> None:
    """Kill a process (if it has the name `only`); it is no error if it has ended meanwhile."""
    with suppress(psutil.NoSuchProcess):
        if only in (None, process.name()):
            process.kill()
