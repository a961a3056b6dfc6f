"""Writes log lines of a rank to standard error."""

from __future__ import annotations

import sys


def log_line(text: str) -> None:
    """Write a line to the standard error, at once: the process may end the next moment."""
    sys.stderr.write(f"training: {text}\n")
    sys.stderr.flush()
