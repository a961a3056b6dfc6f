"""What a rank says to whoever reads its log."""

from __future__ import annotations

import sys


def say(text: str) -> None:
    """Write a line to the standard error, at once: the process may end the next moment."""
    sys.stderr.write(f"training: {text}\n")
    sys.stderr.flush()
