"""The size of a job that its user asks for."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Size:
    """Requested size of a job, as far as the user has set it."""

    gpus: int | None = None
    """Accelerators of all nodes together."""
    nodes: int | None = None
