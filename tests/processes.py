"""Waits for processes of tests, and kills them."""

from __future__ import annotations

import secrets
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import psutil

TIMEOUT_SECONDS: Final = 180.0
"""Long enough for a busy computer; it costs nothing where the event comes at once."""
_PORTS: Final = range(20_000, 30_000)
"""Below those that Linux gives to connections, of which other tests open many meanwhile."""


def wait_for(condition: Callable[[], object], output: Callable[[], str] = lambda: "") -> None:
    """Return once the condition holds; if it never does, `output` gives the details."""
    deadline = time.monotonic() + TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < deadline, f"waited for {TIMEOUT_SECONDS:g} s: {output()}"
        time.sleep(0.02)


def free_port() -> int:
    """A port of this host for a server that needs a number."""
    while True:
        port = secrets.choice(_PORTS)
        with socket.socket() as listener, suppress(OSError):
            listener.bind(("", port))
            return port


def kill(process: psutil.Process, only: str | None = None) -> None:
    """Kill it (if it bears this name); one that has ended by itself in the meantime is no error."""
    with suppress(psutil.NoSuchProcess):
        if only in (None, process.name()):
            process.kill()
