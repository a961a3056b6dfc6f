"""Processes that tests kill while they live their own lives."""

from __future__ import annotations

from contextlib import suppress

import psutil


def kill(process: psutil.Process, only: str | None = None) -> None:
    """Kill it (if it bears this name); one that has ended by itself in the meantime is no error."""
    with suppress(psutil.NoSuchProcess):
        if only in (None, process.name()):
            process.kill()
