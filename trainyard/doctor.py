"""`trainyard doctor`: the machine, seen before anything is done to it."""

from __future__ import annotations

from trainyard.session import Session


def examine(session: Session) -> int:
    """Print what there is, what is missing and what `up` would do; return the exit code."""
    raise NotImplementedError
