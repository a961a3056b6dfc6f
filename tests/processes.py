"""Waiting for conditions, free ports, and kills, for tests that start processes."""

import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

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
